-- commands_take: deliver commands to these workers (:workers is a JSON array).
-- Guarantees: each command is delivered once, because only undelivered ones are, and never after its expiry.
-- Commands of unknown kinds (not in :kinds) are left to expire.
update forebay_worker_commands
set delivered_at = :now
where worker in (select value from json_each(:workers))
  and delivered_at is null
  and expires_at > :now
  and kind in (select value from json_each(:kinds))
returning id, worker, kind, queue, actor, sent_at, expires_at, delivered_at, response, seq;
