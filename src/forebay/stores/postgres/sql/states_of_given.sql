-- states_of_given: what `states` answers, and those of the given ids that a caller transaction is about to write
-- (`ids_lock`); these come without a state.
-- Locks: none is waited for; see `key_holders` for the probe and for the row of nulls.
select id, state from forebay.all_jobs where id = any(%(ids)b::text[])
union all
select n.id, null
from (
  select w.id, hashtextextended('forebay.jobs ' || w.id, 0) as lock_id
  from unnest(%(given_ids)b::text[]) as w (id)
  offset 0
) as n
where not case when pg_try_advisory_lock_shared(n.lock_id) then pg_advisory_unlock_shared(n.lock_id) else false end
union all
select null, null
where not case
    when pg_try_advisory_lock(hashtextextended('forebay.many', 0))
      then pg_advisory_unlock(hashtextextended('forebay.many', 0))
    -- Another probe holds it for a moment, and only in this mode.
    else not exists (
      select 1
      from pg_locks l
      where l.locktype = 'advisory' and l.mode = 'ShareLock' and l.objsubid = 1
        and (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended('forebay.many', 0)
    )
  end;
