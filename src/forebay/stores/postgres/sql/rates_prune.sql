-- rates_prune: delete full token buckets of rates at which queues accept jobs.
-- Locks: SKIP LOCKED. An insert may wait for this delete and then writes the row again.
delete from forebay.rate_buckets
where scope in (
  select scope
  from forebay.rate_buckets
  where refilled_at <= %(before)s
    and (scope like 'client:%%' or scope like 'enqueue:%%')
  for update skip locked
);
