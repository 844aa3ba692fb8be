-- fairness_keys_remove: delete those of these fairness keys that have nothing to run. If an uncommitted insert adds a
-- job of one, a row without a virtual time comes with it. Their lanes behind limits keep their virtual times.
-- Index: side_lanes_order and limit_fairness_lanes_key.
with removed as (
  delete from forebay.fairness_keys s
  where s.queue = %(queue)s
    and s.fairness_key = any(%(fairness_keys)b::text[])
    and s.virtual_time is not null
    and not exists (select 1 from forebay.side_lanes where queue = s.queue and lane = 'fairness:' || s.fairness_key offset 0)
  returning s.queue, s.fairness_key, s.virtual_time
)
update forebay.limit_fairness_lanes l
set resume_virtual_time = g.virtual_time
from removed g
where l.queue = g.queue and l.fairness_key = g.fairness_key;
