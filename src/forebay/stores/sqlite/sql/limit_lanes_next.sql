-- limit_lanes_next: earliest recheck of a limit lane of a queue.
select min(recheck_at)
from forebay_limit_lanes
where queue = :queue;
