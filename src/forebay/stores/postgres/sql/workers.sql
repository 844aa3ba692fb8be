-- name: workers_named: those of these workers that have reported, by start.
select id, host, pid, queues, state, started_at, heartbeat_at, details
from forebay.workers
where id = any(%(workers)b::text[])
order by started_at, id;

-- name: command: commands by id.
select id, worker, kind, queue, actor, sent_at, expires_at, delivered_at, response
from forebay.worker_commands
where id = any(%(ids)b::text[]);

-- name: commands_take: deliver the pending commands of these workers.
-- Guarantees: each command is delivered once: of two callers at once the second waits for the first and then finds it
-- delivered. None is delivered after its expiry. A command of a kind that this program does not know stays until it
-- expires.
-- Index: worker_commands_pending.
update forebay.worker_commands
set delivered_at = forebay.now_ms()
where worker = any(%(workers)b::text[])
  and delivered_at is null
  and expires_at > forebay.now_ms()
  and kind = any(%(kinds)b::text[])
returning id, worker, kind, queue, actor, sent_at, expires_at, delivered_at, response, seq;
