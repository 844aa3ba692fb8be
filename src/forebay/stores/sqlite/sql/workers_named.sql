-- workers_named: those of these that said they are alive, by start.
select id, host, pid, queues, state, started_at, heartbeat_at, details
from forebay_workers
where id in (select value from json_each(:ids))
order by started_at, id;
