-- limit_lanes_next: the time at which the next limit lane of these queues is to be rechecked.
select min(recheck_at)
from forebay.limit_lanes
where queue = any(%(queues)b::text[]);
