-- metrics_save: rows, each in the place of the one with the same key. In the order of their keys, so that two who save
-- the same ones wait for each other and not in a circle.
insert into forebay.metrics (tier, start, queue, worker, body)
select *
from unnest(
  %(tiers)b::bigint[], %(starts)b::bigint[], %(queues)b::text[], %(workers)b::text[], %(bodies)b::bytea[]
) as r (tier, start, queue, worker, body)
order by tier, start, queue collate "C", worker collate "C"
on conflict (tier, start, queue, worker) do update
set body = excluded.body;
