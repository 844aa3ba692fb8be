-- ids_busy: the jobs among these that a caller's open transaction writes or completes (`ids_lock`, `now_holding`).
-- Waits for nobody; see key_holders for the probe.
select n.id
from (
  select w.id, hashtextextended('forebay.jobs ' || w.id, 0) as number from unnest(%(ids)b::text[]) as w (id) offset 0
) as n
where not case when pg_try_advisory_lock_shared(n.number) then pg_advisory_unlock_shared(n.number) else false end;
