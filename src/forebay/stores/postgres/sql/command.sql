-- command: commands by id.
select id, worker, kind, queue, actor, sent_at, expires_at, delivered_at, response
from forebay.worker_commands
where id = any(%(ids)b::text[]);
