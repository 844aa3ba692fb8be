-- ids_busy: those of these jobs that a caller transaction writes or completes (`ids_lock`, `now_completing`).
-- Locks: none is waited for; see `key_holders` for the probe.
select n.id
from (
  select w.id, hashtextextended('forebay.jobs ' || w.id, 0) as lock_id from unnest(%(ids)b::text[]) as w (id) offset 0
) as n
where not case when pg_try_advisory_lock_shared(n.lock_id) then pg_advisory_unlock_shared(n.lock_id) else false end;
