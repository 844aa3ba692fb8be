-- name: metrics: rows of one resolution in a time range, up to the start at which there are `limit` of them.
select starts_at, queue, worker, body
from forebay.metrics
where resolution_ms = :resolution_ms
  and starts_at >= :since
  and starts_at < :before
  and starts_at <= coalesce(
    (
      select starts_at
      from forebay.metrics
      where resolution_ms = :resolution_ms and starts_at >= :since
      order by starts_at
      limit 1 offset :limit::bigint - 1
    ),
    :before
  )
order by starts_at, queue, worker;

-- name: metrics_last: start of the latest row of one resolution.
select max(starts_at) from forebay.metrics where resolution_ms = :resolution_ms;

-- name: throughput: count the last `limit` completed jobs of a queue since a time, with the first time among them.
-- Index: finished_queue (queue, finished_at, seq).
select count(*), min(finished_at)
from (
  select finished_at
  from forebay.finished
  where queue = :queue and finished_at > :since and state = 'completed'
  order by finished_at desc
  limit :limit
) as p;
