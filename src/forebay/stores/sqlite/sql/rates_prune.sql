-- rates_prune: remove token buckets of rates of new jobs that were not used since :before: they are full.
delete from forebay_rate_buckets
where refilled_at <= :before
  and (scope like 'client:%' or scope like 'enqueue:%');
