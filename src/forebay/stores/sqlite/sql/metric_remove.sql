-- metric_remove: one row, whose figures are in another one now.
delete from forebay_metrics
where resolution_ms = :resolution_ms
  and starts_at = :starts_at
  and queue = :queue
  and worker = :worker;
