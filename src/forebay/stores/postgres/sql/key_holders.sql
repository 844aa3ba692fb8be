-- key_holders: jobs that hold these keys now. An expired idempotency key is held by no job. With `probes` also keys
-- without a holder that a caller transaction has taken (`keys_take_tx`); these come without a job. A row of nulls means
-- that a caller transaction has taken more keys or ids than it has locks for.
-- Guarantees: it waits for no lock. The probe takes the lock of the session and releases it at once, so a batch of any
-- size takes one entry of the lock table. It is shared, so two probes never meet. If two keys have the same hash, a
-- free key may look taken: the caller gets a busy error and retries.
-- Cost: one probe per key, see `delayed_take_due`.
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
    -- Another probe holds it for a moment, and only in this mode.
    else not exists (
      select 1
      from pg_locks l
      where l.locktype = 'advisory' and l.mode = 'ShareLock' and l.objsubid = 1
        and (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended('forebay.many', 0)
    )
  end;
