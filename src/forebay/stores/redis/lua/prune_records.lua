#!lua flags=allow-oom
-- Forget events, lines of the audit log, commands and workers that are old, and rates by key that nobody has used for long.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: limit, audit_kept_ms, commands_kept_ms, workers_kept_ms
-- Returns how many events, lines and commands went, and how many rates were looked at; as many as `limit` means that there may be more.
local function prune_events()
  local until_at = now - ask.audit_kept_ms
  local old = redis.call('ZRANGEBYSCORE', prefix .. 'event_times', '-inf', until_at, 'LIMIT', 0, ask.limit)
  for _, number in ipairs(old) do
    local packed = redis.call('HGET', prefix .. 'events', number)
    local id = packed and cmsgpack.unpack(packed)[3]
    if id then
      redis.call('LREM', prefix .. 'events_of:' .. id, 0, number)
    end
  end
  forget_events(old)
  return #old
end

-- The oldest links of the chain, up to the last one that is old: it stays as the anchor.
local function prune_audit(most)
  local until_at = now - ask.audit_kept_ms
  local old = {}
  for i, link in ipairs(redis.call('LRANGE', prefix .. 'audit_chain', 0, most)) do
    local number = string.format('%.0f', cmsgpack.unpack(link)[4])
    local packed = redis.call('HGET', prefix .. 'audit', number)
    if packed and cmsgpack.unpack(packed)[2] > until_at then
      break
    end
    old[i] = number
  end
  table.remove(old)
  send('HDEL', prefix .. 'audit', old)
  send('ZREM', prefix .. 'audit_order', old)
  redis.call('LTRIM', prefix .. 'audit_chain', #old, -1)
  return #old
end

local function prune_commands(most)
  local until_at = now - ask.commands_kept_ms
  local old = redis.call('ZRANGEBYSCORE', prefix .. 'command_times', '-inf', until_at, 'LIMIT', 0, most)
  for _, id in ipairs(old) do
    local packed = redis.call('HGET', prefix .. 'commands', id)
    if packed then
      redis.call('LREM', prefix .. 'commands_of:' .. cmsgpack.unpack(packed)[2], 0, id)
    end
  end
  send('HDEL', prefix .. 'commands', old)
  send('ZREM', prefix .. 'command_times', old)
  return #old
end

-- Whoever slows a rate down makes it full later than was thought.
local function prune_buckets(most)
  local old = redis.call('ZRANGEBYSCORE', prefix .. 'bucket_times', '-inf', now, 'LIMIT', 0, most)
  for _, scope in ipairs(old) do
    local limit = limit_of(scope)
    local is_rated = limit and limit[L_RATE]
    local parts, at
    if is_rated then
      parts, at = bucket_of(limit, scope)
    end
    if is_rated and filled(limit, parts, at) < limit[L_MOST] * limit[L_PER_MS] then
      keep_bucket(scope, limit, parts, at)
    else
      redis.call('HDEL', prefix .. 'buckets', scope)
      redis.call('ZREM', prefix .. 'bucket_times', scope)
    end
  end
  return #old
end

local function prune_workers()
  local all = redis.call('HGETALL', prefix .. 'workers')
  for i = 1, #all, 2 do
    if cmsgpack.unpack(all[i + 1])[7] <= now - ask.workers_kept_ms then
      redis.call('HDEL', prefix .. 'workers', all[i])
    end
  end
end

prune_workers()
local events = prune_events()
local lines = prune_audit(ask.limit - events)
local commands = prune_commands(ask.limit - events - lines)
return events + lines + commands + prune_buckets(ask.limit - events - lines - commands)
