-- commands_take: give these workers (:workers is a JSON array) what they are asked for.
-- Guarantees: each command is given once, since only one that nobody has taken is given, and never after its
-- end. One of a kind that this program does not know (:kinds) is left for its end to come.
update forebay_worker_commands
set delivered_at = :now
where worker in (select value from json_each(:workers))
  and delivered_at is null
  and expires_at > :now
  and kind in (select value from json_each(:kinds))
returning id, worker, kind, queue, actor, sent_at, expires_at, delivered_at, response, seq;
