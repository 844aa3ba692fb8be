#!lua flags=allow-oom
-- Say what came of a command; nothing happens if it is gone.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: id, text
-- Returns nothing.
local packed = redis.call('HGET', prefix .. 'commands', request.id)
if packed then
  local command = cmsgpack.unpack(packed)
  command[9] = request.text
  redis.call('HSET', prefix .. 'commands', request.id, cmsgpack.pack(command))
end
