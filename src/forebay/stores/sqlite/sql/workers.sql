-- workers: workers with a heartbeat, by start.
select id, host, pid, queues, state, started_at, heartbeat_at, details
from forebay_workers
order by started_at, id;
