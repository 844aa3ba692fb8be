-- limit_lanes_next: when it is time to look behind the next gate of these queues.
select min(recheck_at)
from forebay.limit_lanes
where queue = any(%(queues)b::text[]);
