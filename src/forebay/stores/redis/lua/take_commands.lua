#!lua flags=allow-oom
-- take_commands: commands for these workers that are neither taken nor expired; each is delivered once.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: workers, kinds (that the caller knows)
-- Returns the commands.
local known, taken = {}, {}
for _, kind in ipairs(request.kinds) do
  known[kind] = true
end
for _, worker in ipairs(request.workers) do
  local pending_key = prefix .. 'worker_commands:' .. worker
  for _, id in ipairs(redis.call('LRANGE', pending_key, 0, -1)) do
    local packed = redis.call('HGET', prefix .. 'commands', id)
    local command = packed and cmsgpack.unpack(packed)
    if not command or command[7] <= now then
      redis.call('LREM', pending_key, 0, id)
    elseif known[command[3]] then
      command[8] = now
      local text = cmsgpack.pack(command)
      redis.call('HSET', prefix .. 'commands', id, text)
      redis.call('LREM', pending_key, 0, id)
      taken[#taken + 1] = text
    end
  end
end
return taken
