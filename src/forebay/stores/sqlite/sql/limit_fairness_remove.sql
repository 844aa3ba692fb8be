-- limit_fairness_remove: forget a lane without jobs. Relies on index forebay_jobs_ready (queue, gate, ...).
delete from forebay_limit_fairness_lanes
where queue = :queue
  and scope = :scope
  and fairness_key = :fairness_key
  and not exists (select 1 from forebay_jobs where state = 'pending' and queue = :queue and lane = :lane);
