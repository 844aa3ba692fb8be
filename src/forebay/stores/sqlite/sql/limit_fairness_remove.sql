-- limit_fairness_remove: remove a lane without jobs. Index: forebay_jobs_ready (queue, lane, ...).
delete from forebay_limit_fairness_lanes
where queue = :queue
  and scope = :scope
  and fairness_key = :fairness_key
  and not exists (select 1 from forebay_jobs where state = 'pending' and queue = :queue and lane = :lane);
