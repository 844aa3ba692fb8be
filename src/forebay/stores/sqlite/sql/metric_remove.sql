-- metric_remove: one row, whose figures are in another one now.
delete from forebay_metrics
where tier = :tier
  and start = :start
  and queue = :queue
  and worker = :worker;
