-- command: one command.
select id, worker, kind, queue, actor, sent_at, expires_at, delivered_at, response
from forebay_worker_commands
where id = :id;
