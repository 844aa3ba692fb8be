#!lua flags=allow-oom
-- answer_command: store the response to a worker command. A command that was pruned is ignored.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: id, text
-- Returns nothing.
local packed = redis.call('HGET', prefix .. 'commands', request.id)
if packed then
  local command = cmsgpack.unpack(packed)
  command[9] = request.text
  redis.call('HSET', prefix .. 'commands', request.id, cmsgpack.pack(command))
end
