-- limit_slots_prune: forget places of jobs that ended without a settlement.
-- Guarantees: an attempt that begins meanwhile keeps its place. It has written its number there: we wait for it, look at
-- the place again, and find another attempt than the one that was over.
with resolved as materialized (
  select scope, id, attempt from forebay.limit_slots p where not exists (select 1 from forebay.leases l where l.id = p.id)
)
delete from forebay.limit_slots p
using resolved o
where p.scope = o.scope and p.id = o.id and p.attempt = o.attempt;
