-- partition_timeouts: a change of partitions waits only a moment for its lock, since all others wait behind it. Going
-- through a whole day may take longer than other statements may.
select set_config('lock_timeout', '100ms', true), set_config('statement_timeout', '10min', true),
  set_config('enable_seqscan', 'on', true),
  set_config('enable_hashjoin', 'on', true);
