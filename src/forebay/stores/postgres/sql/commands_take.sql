-- commands_take: give these workers what they are asked for.
-- Guarantees: each command is given once: of two who ask at once the second waits for the first and then finds
-- it taken. Never after its end. One of a kind that this program does not know is left for its end to come.
-- Relies on index commands_waiting.
update forebay.worker_commands
set delivered_at = forebay.now_ms()
where worker = any(%(workers)b::text[])
  and delivered_at is null
  and expires_at > forebay.now_ms()
  and kind = any(%(kinds)b::text[])
returning id, worker, kind, queue, actor, sent_at, expires_at, delivered_at, response, seq;
