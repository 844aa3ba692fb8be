-- name: workers_named: those of these workers with a heartbeat, by start.
select id, host, pid, queues, state, started_at, heartbeat_at, details
from forebay_workers
where id in (select value from json_each(:ids))
order by started_at, id;

-- name: command: one command.
select id, worker, kind, queue, actor, sent_at, expires_at, delivered_at, response
from forebay_worker_commands
where id = :id;

-- name: commands_pending: whether there are commands for these workers (:workers is a JSON array). Each worker runs
-- this once a second, without the write lock.
-- Index: forebay_worker_commands_pending.
select 1
from forebay_worker_commands
where worker in (select value from json_each(:workers))
  and delivered_at is null
  and expires_at > :now
limit 1;

-- name: commands_take: deliver commands to these workers (:workers is a JSON array).
-- Guarantees: each command is delivered once, because only undelivered ones are, and never after its expiry.
-- Commands of unknown kinds (not in :kinds) are left to expire.
update forebay_worker_commands
set delivered_at = :now
where worker in (select value from json_each(:workers))
  and delivered_at is null
  and expires_at > :now
  and kind in (select value from json_each(:kinds))
returning id, worker, kind, queue, actor, sent_at, expires_at, delivered_at, response, seq;
