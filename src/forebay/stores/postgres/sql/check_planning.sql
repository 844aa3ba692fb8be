-- check_planning: allow sequential scans and hash joins, since checks read whole tables.
select set_config('enable_seqscan', 'on', true), set_config('enable_hashjoin', 'on', true),
  set_config('enable_bitmapscan', 'on', true), set_config('enable_mergejoin', 'on', true),
  set_config('enable_material', 'on', true), set_config('statement_timeout', '10min', true);
