-- search_planning: which index a search goes by depends on what is asked, so each is planned for itself; and marks are in
-- an index that can only be read as a whole.
select set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_bitmapscan', 'on', true),
  set_config('random_page_cost', '1', true);
