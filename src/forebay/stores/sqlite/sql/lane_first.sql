-- lane_first: whether jobs wait in the lane of a limit, or in fairness lanes there.
select 1
where exists (select 1 from forebay_jobs where state = 'pending' and queue = :queue and lane = :lane)
  or exists (select 1 from forebay_limit_fairness_lanes where queue = :queue and scope = :scope);
