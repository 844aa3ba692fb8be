-- commands_pending: whether something may be there for these workers (:workers is a JSON array). Asked once a
-- second by each of them, without the write lock. Relies on index forebay_commands_waiting.
select 1
from forebay_worker_commands
where worker in (select value from json_each(:workers))
  and delivered_at is null
  and expires_at > :now
limit 1;
