-- metrics_save: store rows, each in place of the one with the same key.
-- Locks: by key, so that two transactions that store the same rows do not deadlock.
insert into forebay.metrics (resolution_ms, starts_at, queue, worker, body)
select *
from unnest(
  %(resolution_ms)b::bigint[], %(starts_at)b::bigint[], %(queues)b::text[], %(workers)b::text[], %(bodies)b::bytea[]
) as r (resolution_ms, starts_at, queue, worker, body)
order by resolution_ms, starts_at, queue collate "C", worker collate "C"
on conflict (resolution_ms, starts_at, queue, worker) do update
set body = excluded.body;
