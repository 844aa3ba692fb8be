-- days_patience: a change of partitions waits only a moment for its lock, since all others wait behind it.
select set_config('lock_timeout', '100ms', true), set_config('enable_seqscan', 'on', true),
  set_config('enable_hashjoin', 'on', true);
