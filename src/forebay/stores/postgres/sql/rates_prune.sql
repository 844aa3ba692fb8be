-- rates_prune: forget what nobody has used for long of the rates at which queues take jobs: it is full.
-- Waits for nobody; who inserts may wait for this delete, and then writes the row anew.
delete from forebay.rate_buckets
where scope in (
  select scope
  from forebay.rate_buckets
  where refilled_at <= %(before)s
    and (scope like 'client:%%' or scope like 'enqueue:%%')
  for update skip locked
);
