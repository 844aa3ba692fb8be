-- partition_timeouts: wait only a moment for the lock of a change of partitions, since all other transactions wait
-- behind it. Reading a whole day may take longer than other statements may.
select set_config('lock_timeout', '100ms', true), set_config('statement_timeout', '10min', true),
  set_config('enable_seqscan', 'on', true),
  set_config('enable_hashjoin', 'on', true);
