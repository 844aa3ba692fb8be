#!lua flags=allow-oom
-- send_commands: send commands to workers.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: commands (id, worker, kind, queue, actor, sent_at, expires_ms, delivered_at, response),
--   is_for_all (skip workers that have left meanwhile)
-- Returns {'refused', error}, or {'done', now, for each command whether it was sent}.
local sent = {}
for i, command in ipairs(request.commands) do
  sent[i] = redis.call('HEXISTS', prefix .. 'workers', command[2])
  if sent[i] == 0 and not request.is_for_all then
    return {'refused', {'WorkerNotFound', command[2]}}
  end
end
for i, command in ipairs(request.commands) do
  if sent[i] == 1 then
    command[6], command[7] = now, now + command[7]
    redis.call('HSET', prefix .. 'commands', command[1], cmsgpack.pack(command))
    redis.call('ZADD', prefix .. 'command_expiry', command[7], command[1])
    redis.call('RPUSH', prefix .. 'worker_commands:' .. command[2], command[1])
    local detail = command[3] .. ' ' .. command[2]
    new_events[#new_events + 1] = {'worker_command', now, false, command[4], false, command[5], detail}
    needs_wakeup = true
  end
end
return finish({'done', now, sent})
