-- workers_named: those of these workers with a heartbeat, by start.
select id, host, pid, queues, state, started_at, heartbeat_at, details
from forebay_workers
where id in (select value from json_each(:ids))
order by started_at, id;
