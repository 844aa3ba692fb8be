-- limit_fairness_lanes: fairness keys with jobs parked at a limit, lowest virtual time first.
-- Index: forebay_limit_fairness_lanes_virtual_time.
select fairness_key, virtual_time
from forebay_limit_fairness_lanes
where queue = :queue and scope = :scope
order by virtual_time, fairness_key
limit :limit;
