-- fairness_keys_advance: advance the virtual times of fairness keys whose jobs were claimed.
update forebay.fairness_keys s
set virtual_time = s.virtual_time + m.step
from unnest(%(fairness_keys)b::text[], %(steps)b::bigint[]) as m (fairness_key, step)
where s.queue = %(queue)s and s.fairness_key = m.fairness_key and s.virtual_time is not null;
