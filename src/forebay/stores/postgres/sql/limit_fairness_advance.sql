-- limit_fairness_advance: jobs of these lanes were brought back.
-- Locks: the caller holds the lock of the queue's shares.
update forebay.limit_fairness_lanes l
set virtual_time = l.virtual_time + m.step
from unnest(%(fairness_keys)b::text[], %(steps)b::bigint[]) as m (fairness_key, step)
where l.queue = %(queue)s and l.scope = %(scope)s and l.fairness_key = m.fairness_key;
