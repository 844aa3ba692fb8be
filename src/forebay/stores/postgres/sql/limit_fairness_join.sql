-- limit_fairness_join: record fairness keys whose jobs were parked behind limits. A new key starts one step behind the
-- first.
-- Locks: the caller holds the fairness lock of the queue.
insert into forebay.limit_fairness_lanes (queue, scope, fairness_key, virtual_time, resume_virtual_time)
select %(queue)s::text, n.scope, n.fairness_key, coalesce(f.virtual_time, 0) + n.step, coalesce(s.virtual_time, 0)
from unnest(%(scopes)b::text[], %(fairness_keys)b::text[], %(steps)b::bigint[]) as n (scope, fairness_key, step)
left join lateral (
  select virtual_time
  from forebay.limit_fairness_lanes
  where queue = %(queue)s and scope = n.scope
  order by virtual_time
  limit 1
) as f on true
left join lateral (
  select virtual_time
  from forebay.fairness_keys
  where queue = %(queue)s and fairness_key = n.fairness_key and virtual_time is not null
  limit 1
) as s on true
on conflict (queue, scope, fairness_key) do nothing;
