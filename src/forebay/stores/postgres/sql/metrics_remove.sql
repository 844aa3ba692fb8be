-- metrics_remove: delete rows that were merged into others.
delete from forebay.metrics
where (resolution_ms, starts_at, queue, worker) in (
  select *
  from unnest(%(resolution_ms)b::bigint[], %(starts_at)b::bigint[], %(queues)b::text[], %(workers)b::text[])
);
