-- closed_next: when it is time to look behind the next gate of a queue.
select min(look_at)
from forebay_closed
where queue = :queue;
