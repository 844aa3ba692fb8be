-- limit_fairness_join: add the lane of a fairness key at a limit. A new lane begins one step behind the
-- first.
insert into forebay_limit_fairness_lanes (queue, scope, fairness_key, virtual_time, resume_virtual_time)
select :queue, :scope, :fairness_key,
  coalesce((select min(virtual_time) from forebay_limit_fairness_lanes where queue = :queue and scope = :scope), 0) + :step,
  coalesce((select virtual_time from forebay_fairness_keys where queue = :queue and fairness_key = :fairness_key), 0)
where true
on conflict (queue, scope, fairness_key) do nothing;
