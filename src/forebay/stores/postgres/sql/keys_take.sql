-- keys_take: give keys to jobs.
-- Guarantees: only an expired holder is replaced. Another transaction that takes the same key at the same time is
-- waited for, and then this key is not among the answers.
-- Locks: in the order given, which is the same for every transaction.
insert into forebay.job_keys as k (queue, kind, key, job_id, held_until)
select w.queue, w.kind, w.key, w.job_id, w.held_until
from unnest(
  %(queues)b::text[], %(kinds)b::text[], %(keys)b::text[], %(job_ids)b::text[], %(held_until)b::bigint[]
) as w (queue, kind, key, job_id, held_until)
on conflict (queue, kind, key) do update
set job_id = excluded.job_id, held_until = excluded.held_until
where k.held_until <= %(now)s
returning queue, kind, key;
