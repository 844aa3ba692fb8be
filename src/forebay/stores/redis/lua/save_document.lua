#!lua
-- save_document: replace the revision of a document that the caller has read, or create it.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: kind, name, body, revision (as the caller read it, 0 for none), event (false for none)
-- Returns 1, or 0 if the revision has changed.
local key = prefix .. 'documents:' .. request.kind
local packed = redis.call('HGET', key, request.name)
local known = packed and cmsgpack.unpack(packed)
if (known and known[2] or 0) ~= request.revision then
  return 0
end
local created_at = known and known[3] or now
redis.call('HSET', key, request.name, cmsgpack.pack({request.body, request.revision + 1, created_at, now}))
redis.call('ZADD', prefix .. 'document_names:' .. request.kind, 0, request.name)
if request.event then
  request.event[2] = now
  new_events[#new_events + 1] = request.event
end
return finish(1)
