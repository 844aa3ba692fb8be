-- workers: those that said they are alive, by start.
select id, host, pid, queues, state, started_at, beat_at, said
from forebay.workers
order by started_at, id;
