-- limit_lanes_next: when it is time to look behind the next gate of a queue.
select min(recheck_at)
from forebay_limit_lanes
where queue = :queue;
