-- workers_named: those of these that said they are alive, by start.
select id, host, pid, queues, state, started_at, heartbeat_at, details
from forebay.workers
where id = any(%(workers)b::text[])
order by started_at, id;
