-- search_planning: plan each search for its own conditions, and allow bitmap scans: search hashes are in an index that
-- can only be read as a whole.
select set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_bitmapscan', 'on', true),
  set_config('random_page_cost', '1', true);
