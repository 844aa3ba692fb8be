-- workers: those that said they are alive, by start.
select id, host, pid, queues, state, started_at, heartbeat_at, details
from forebay.workers
order by started_at, id;
