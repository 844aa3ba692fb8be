-- limit_fairness_lanes: shares with jobs behind a limit, the next first. Relies on index forebay_lanes_turn.
select fairness_key, virtual_time
from forebay_limit_fairness_lanes
where queue = :queue and scope = :scope
order by virtual_time, fairness_key
limit :limit;
