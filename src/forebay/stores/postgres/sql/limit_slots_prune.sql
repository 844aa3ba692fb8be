-- limit_slots_prune: delete slots of jobs that ended without a settlement.
-- Guarantees: an attempt that begins meanwhile keeps its slot. It has written its attempt there: this statement waits
-- for it, rechecks the row and finds another attempt.
with resolved as materialized (
  select scope, id, attempt
  from forebay.limit_slots p
  where not exists (select 1 from forebay.leases l where l.id = p.id)
)
delete from forebay.limit_slots p
using resolved o
where p.scope = o.scope and p.id = o.id and p.attempt = o.attempt;
