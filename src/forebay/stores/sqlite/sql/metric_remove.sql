-- metric_remove: remove one row that was merged into another one.
delete from forebay_metrics
where resolution_ms = :resolution_ms
  and starts_at = :starts_at
  and queue = :queue
  and worker = :worker;
