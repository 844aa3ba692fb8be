#!lua flags=allow-oom
-- drop_document: remove a document.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: kind, name, event (false for none)
-- Returns 1, or 0 if there was none.
if redis.call('HDEL', prefix .. 'documents:' .. request.kind, request.name) == 0 then
  return 0
end
redis.call('ZREM', prefix .. 'document_names:' .. request.kind, request.name)
if request.event then
  request.event[2] = now
  new_events[#new_events + 1] = request.event
end
return finish(1)
