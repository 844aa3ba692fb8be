-- commands_pending: whether there are commands for these workers (:workers is a JSON array). Each worker runs
-- this once a second, without the write lock.
-- Index: forebay_worker_commands_pending.
select 1
from forebay_worker_commands
where worker in (select value from json_each(:workers))
  and delivered_at is null
  and expires_at > :now
limit 1;
