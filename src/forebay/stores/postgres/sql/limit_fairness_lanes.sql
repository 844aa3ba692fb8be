-- limit_fairness_lanes: shares with jobs behind a limit, the next first. Relies on index lanes_turn.
select fairness_key, virtual_time
from forebay.limit_fairness_lanes
where queue = %(queue)s and scope = %(scope)s
order by virtual_time, fairness_key
limit %(limit)s;
