-- keys_take: give keys to jobs, in the order in which they come, which is the same for everybody.
-- Guarantees: only a holder whose time has run out is replaced. Whoever takes the same key at the same time is
-- waited for, and then this one is not among the answers.
insert into forebay.keys as k (queue, kind, key, job_id, until)
select w.queue, w.kind, w.key, w.job_id, w.until
from unnest(
  %(queues)b::text[], %(kinds)b::text[], %(keys)b::text[], %(job_ids)b::text[], %(untils)b::bigint[]
) as w (queue, kind, key, job_id, until)
on conflict (queue, kind, key) do update
set job_id = excluded.job_id, until = excluded.until
where k.until <= %(now)s
returning queue, kind, key;
