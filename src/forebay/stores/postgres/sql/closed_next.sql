-- closed_next: when it is time to look behind the next gate of these queues.
select min(look_at)
from forebay.closed
where queue = any(%(queues)b::text[]);
