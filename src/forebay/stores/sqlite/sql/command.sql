-- command: one command as it is now.
select id, worker, kind, queue, actor, sent_at, expires_at, taken_at, answer
from forebay_commands
where id = :id;
