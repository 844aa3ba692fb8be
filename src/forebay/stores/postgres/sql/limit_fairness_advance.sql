-- limit_fairness_advance: advance the virtual times of fairness keys whose jobs left the lane of a limit.
-- Locks: the caller holds the fairness lock of the queue.
update forebay.limit_fairness_lanes l
set virtual_time = l.virtual_time + m.step
from unnest(%(fairness_keys)b::text[], %(steps)b::bigint[]) as m (fairness_key, step)
where l.queue = %(queue)s and l.scope = %(scope)s and l.fairness_key = m.fairness_key;
