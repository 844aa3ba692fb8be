#!lua
-- Write a document in the place of the one that the caller has seen, or of none.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: kind, name, body, revision (of what was seen, 0 for none), event (false for none)
-- Returns 1, or 0 if it has another revision by now.
local key = prefix .. 'documents:' .. ask.kind
local packed = redis.call('HGET', key, ask.name)
local known = packed and cmsgpack.unpack(packed)
if (known and known[2] or 0) ~= ask.revision then
  return 0
end
local created_at = known and known[3] or now
redis.call('HSET', key, ask.name, cmsgpack.pack({ask.body, ask.revision + 1, created_at, now}))
redis.call('ZADD', prefix .. 'document_names:' .. ask.kind, 0, ask.name)
if ask.event then
  ask.event[2] = now
  told[#told + 1] = ask.event
end
return finish(1)
