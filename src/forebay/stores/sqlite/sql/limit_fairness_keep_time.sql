-- limit_fairness_keep_time: a share has nothing to run outside of its lanes: these keep its turn. Relies on index forebay_lanes_share.
update forebay_limit_fairness_lanes
set resume_virtual_time = (select virtual_time from forebay_fairness_keys where queue = :queue and fairness_key = :fairness_key)
where queue = :queue
  and fairness_key = :fairness_key
  and exists (select 1 from forebay_fairness_keys where queue = :queue and fairness_key = :fairness_key);
