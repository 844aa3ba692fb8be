-- name: workers: workers that have reported, by start.
select id, host, pid, queues, state, started_at, heartbeat_at, details
from forebay.workers
order by started_at, id;

-- name: workers_prune: delete workers without a heartbeat for a day.
delete from forebay.workers where heartbeat_at <= :before;

-- name: heartbeat: store the report of a worker. The start of its first report stays.
insert into forebay.workers (id, host, pid, queues, state, started_at, heartbeat_at, details)
values (:id, :host, :pid, :queues, :state, :started_at, :now, :details)
on conflict (id) do update
set host = excluded.host,
    pid = excluded.pid,
    queues = excluded.queues,
    state = excluded.state,
    heartbeat_at = excluded.heartbeat_at,
    details = excluded.details;

-- name: remove_worker: delete a worker that has stopped.
delete from forebay.workers where id = :id;

-- name: command_add: store a command to one worker.
insert into forebay.worker_commands (id, worker, kind, queue, actor, sent_at, expires_at)
values (:id, :worker, :kind, :queue, :actor, :sent_at, :expires_at);

-- name: command_answer: store the response to a command.
update forebay.worker_commands set response = :response where id = :id;

-- name: commands_prune: delete commands that expired an hour ago.
delete from forebay.worker_commands where expires_at <= :before;
