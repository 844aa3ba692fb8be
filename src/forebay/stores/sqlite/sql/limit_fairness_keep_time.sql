-- limit_fairness_keep_time: store the virtual time of a fairness key without other pending jobs in its lanes.
-- Index: forebay_limit_fairness_lanes_key.
update forebay_limit_fairness_lanes
set resume_virtual_time = (select virtual_time from forebay_fairness_keys where queue = :queue and fairness_key = :fairness_key)
where queue = :queue
  and fairness_key = :fairness_key
  and exists (select 1 from forebay_fairness_keys where queue = :queue and fairness_key = :fairness_key);
