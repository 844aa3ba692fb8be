#!lua flags=allow-oom
-- Remove a document.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: kind, name, event (false for none)
-- Returns 1, or 0 if there was none.
if redis.call('HDEL', prefix .. 'documents:' .. ask.kind, ask.name) == 0 then
  return 0
end
redis.call('ZREM', prefix .. 'document_names:' .. ask.kind, ask.name)
if ask.event then
  ask.event[2] = now
  told[#told + 1] = ask.event
end
return finish(1)
