-- metrics_save: rows, each in the place of the one with the same key. In the order of their keys, so that two who save
-- the same ones wait for each other and not in a circle.
insert into forebay.metrics (resolution_ms, starts_at, queue, worker, body)
select *
from unnest(
  %(resolution_ms)b::bigint[], %(starts_at)b::bigint[], %(queues)b::text[], %(workers)b::text[], %(bodies)b::bytea[]
) as r (resolution_ms, starts_at, queue, worker, body)
order by resolution_ms, starts_at, queue collate "C", worker collate "C"
on conflict (resolution_ms, starts_at, queue, worker) do update
set body = excluded.body;
