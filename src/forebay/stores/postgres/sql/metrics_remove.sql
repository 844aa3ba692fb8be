-- metrics_remove: rows whose figures are in others now.
delete from forebay.metrics
where (tier, start, queue, worker) in (
  select *
  from unnest(%(tiers)b::bigint[], %(starts)b::bigint[], %(queues)b::text[], %(workers)b::text[])
);
