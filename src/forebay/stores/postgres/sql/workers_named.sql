-- workers_named: those of these workers that have reported, by start.
select id, host, pid, queues, state, started_at, heartbeat_at, details
from forebay.workers
where id = any(%(workers)b::text[])
order by started_at, id;
