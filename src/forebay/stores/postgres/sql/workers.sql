-- workers: workers that have reported, by start.
select id, host, pid, queues, state, started_at, heartbeat_at, details
from forebay.workers
order by started_at, id;
