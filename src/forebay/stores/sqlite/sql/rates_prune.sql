-- rates_prune: forget what nobody has used since :before of the rates at which queues take jobs: it is full.
delete from forebay_rate_buckets
where refilled_at <= :before
  and (scope like 'client:%' or scope like 'enqueue:%');
