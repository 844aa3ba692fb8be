-- keys_take_tx: what `keys_take` does, in a caller transaction. It also takes an advisory lock for each key until that
-- ends. So other transactions see that the key is taken before it is committed, and need not wait (`key_holders`).
-- Guarantees: another caller transaction that takes the same key is waited for, as in `keys_take`; no other transaction
-- holds such a lock for longer than a moment.
-- Locks: in the order of the keys, as everywhere. A transaction takes at most 16 such locks, however many calls it
-- makes: the lock table has 64 entries for each connection by default. A transaction with more keys holds one lock for
-- all the rest, shared with other such callers. While that is held, other transactions wait for a key only briefly
-- (`shorten_lock_timeout`).
with room as materialized (
  select coalesce(nullif(current_setting('forebay_tx.locks', true), '')::bigint, 0) as taken
),
wanted as materialized (
  select n.queue, n.kind, n.key, n.job_id, n.held_until,
    case when r.taken + n.nth <= 16 then
      pg_advisory_xact_lock(hashtextextended('forebay.job_keys ' || n.queue || ' ' || n.kind || ' ' || n.key, 0))::text
    end as lock
  from room r
  cross join unnest(
    %(queues)b::text[], %(kinds)b::text[], %(keys)b::text[], %(job_ids)b::text[], %(held_until)b::bigint[]
  ) with ordinality as n (queue, kind, key, job_id, held_until, nth)
),
counted as materialized (
  select set_config('forebay_tx.locks', (r.taken + cardinality(%(keys)b::text[]))::text, true) as locks,
    case when r.taken + cardinality(%(keys)b::text[]) > 16 then
      pg_advisory_xact_lock_shared(hashtextextended('forebay.many', 0))::text
    end as rest
  from room r
)
insert into forebay.job_keys as k (queue, kind, key, job_id, held_until)
select w.queue, w.kind, w.key, w.job_id, w.held_until
from counted
cross join wanted w
on conflict (queue, kind, key) do update
set job_id = excluded.job_id, held_until = excluded.held_until
where k.held_until <= %(now)s
returning queue, kind, key;
