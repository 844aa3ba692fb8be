-- limit_fairness_lanes: fairness keys with jobs behind a limit, lowest virtual time first.
-- Index: limit_fairness_lanes_virtual_time.
select fairness_key, virtual_time
from forebay.limit_fairness_lanes
where queue = %(queue)s and scope = %(scope)s
order by virtual_time, fairness_key
limit %(limit)s;
