-- key_holders: who holds these keys now. A once key that has run out is held by nobody. With `probes` also keys that nobody
-- holds yet and a caller's open transaction has taken (`keys_take_within`); these come without a job. A row of nulls means
-- that some open transaction has taken more keys or ids than it has locks for.
-- Guarantees: waits for nobody. The probe takes the lock of the session and lets go of it at once, so a batch of any size
-- takes one place in the server's table of locks. It is shared, so two probes never meet. Two keys with one number make
-- a key look taken that is free: the caller is answered busy, and tries again.
-- Each key is looked up by itself, for the reason that `due` gives.
select w.queue, w.kind, w.key, k.job_id
from unnest(%(queues)b::text[], %(kinds)b::text[], %(keys)b::text[]) as w (queue, kind, key)
cross join lateral (
  select hashtextextended('forebay.job_keys ' || w.queue || ' ' || w.kind || ' ' || w.key, 0) as lock_id offset 0
) as l
left join lateral (
  select job_id, held_until from forebay.job_keys where queue = w.queue and kind = w.kind and key = w.key offset 0
) as k on k.held_until is null or k.held_until > %(now)s
where k.job_id is not null
  or %(probes)s::boolean
  and not case when pg_try_advisory_lock_shared(l.lock_id) then pg_advisory_unlock_shared(l.lock_id) else false end
union all
select null, null, null, null
where %(probes)s::boolean
  and not case
    when pg_try_advisory_lock(hashtextextended('forebay.many', 0))
      then pg_advisory_unlock(hashtextextended('forebay.many', 0))
    -- Another probe holds it for a moment, and in this mode alone.
    else not exists (
      select 1
      from pg_locks l
      where l.locktype = 'advisory' and l.mode = 'ShareLock' and l.objsubid = 1
        and (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended('forebay.many', 0)
    )
  end;
