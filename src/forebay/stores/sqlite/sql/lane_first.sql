-- lane_first: whether anybody waits behind the gate of a limit, or in a lane there.
select 1
where exists (select 1 from forebay_jobs where state = 'pending' and queue = :queue and lane = :lane)
  or exists (select 1 from forebay_limit_fairness_lanes where queue = :queue and scope = :scope);
