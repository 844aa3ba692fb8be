-- name: metrics_prune: delete the oldest rows of one resolution, up to the start at which there are `limit` of them.
delete from forebay.metrics
where resolution_ms = %(resolution_ms)s
  and starts_at < %(before)s
  and starts_at <= coalesce(
    (
      select starts_at
      from forebay.metrics
      where resolution_ms = %(resolution_ms)s
      order by starts_at
      limit 1 offset %(limit)s::bigint - 1
    ),
    %(before)s
  )
returning 1;

-- name: metrics_remove: delete rows that were merged into others.
delete from forebay.metrics
where (resolution_ms, starts_at, queue, worker) in (
  select *
  from unnest(%(resolution_ms)b::bigint[], %(starts_at)b::bigint[], %(queues)b::text[], %(workers)b::text[])
);

-- name: metrics_save: store rows, each in place of the one with the same key.
-- Locks: by key, so that two transactions that store the same rows do not deadlock.
insert into forebay.metrics (resolution_ms, starts_at, queue, worker, body)
select *
from unnest(
  %(resolution_ms)b::bigint[], %(starts_at)b::bigint[], %(queues)b::text[], %(workers)b::text[], %(bodies)b::bytea[]
) as r (resolution_ms, starts_at, queue, worker, body)
order by resolution_ms, starts_at, queue collate "C", worker collate "C"
on conflict (resolution_ms, starts_at, queue, worker) do update
set body = excluded.body;
