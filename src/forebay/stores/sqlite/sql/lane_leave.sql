-- lane_leave: forget a lane without jobs. Relies on index forebay_jobs_ready (queue, gate, ...).
delete from forebay_lanes
where queue = :queue
  and scope = :scope
  and share = :share
  and not exists (select 1 from forebay_jobs where state = 'pending' and queue = :queue and gate = :gate);
