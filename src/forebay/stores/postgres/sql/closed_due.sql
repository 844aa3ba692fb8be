-- closed_due: gates of these queues that it is time to look behind.
select queue, scope
from forebay.closed
where queue = any(%(queues)b::text[]) and look_at <= forebay.now_ms()
order by look_at
limit %(limit)s;
