-- command: commands as they are now.
select id, worker, kind, queue, actor, sent_at, expires_at, taken_at, answer
from forebay.commands
where id = any(%(ids)b::text[]);
