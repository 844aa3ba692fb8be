#!lua flags=allow-oom
-- prune_records: remove old events, audit entries, commands, workers and token buckets that are full again.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: limit, audit_retention_ms, commands_retention_ms, workers_retention_ms
-- Returns the number of events, entries and commands removed plus the number of buckets checked; `limit` means that
--   there may be more.
local function prune_events()
  local until_at = now - request.audit_retention_ms
  local expired = redis.call('ZRANGEBYSCORE', prefix .. 'event_times', '-inf', until_at, 'LIMIT', 0, request.limit)
  for _, number in ipairs(expired) do
    local packed = redis.call('HGET', prefix .. 'events', number)
    local id = packed and cmsgpack.unpack(packed)[3]
    if id then
      redis.call('LREM', prefix .. 'job_events:' .. id, 0, number)
    end
  end
  delete_events(expired)
  return #expired
end

-- Remove the oldest chain links up to the last old one, which stays as the anchor.
local function prune_audit(limit)
  local until_at = now - request.audit_retention_ms
  local expired = {}
  for i, link in ipairs(redis.call('LRANGE', prefix .. 'audit_chain', 0, limit)) do
    local number = string.format('%.0f', cmsgpack.unpack(link)[4])
    local packed = redis.call('HGET', prefix .. 'audit', number)
    if packed and cmsgpack.unpack(packed)[2] > until_at then
      break
    end
    expired[i] = number
  end
  table.remove(expired)
  call_in_slices('HDEL', prefix .. 'audit', expired)
  call_in_slices('ZREM', prefix .. 'audit_order', expired)
  redis.call('LTRIM', prefix .. 'audit_chain', #expired, -1)
  return #expired
end

local function prune_commands(limit)
  local until_at = now - request.commands_retention_ms
  local expired = redis.call('ZRANGEBYSCORE', prefix .. 'command_expiry', '-inf', until_at, 'LIMIT', 0, limit)
  for _, id in ipairs(expired) do
    local packed = redis.call('HGET', prefix .. 'commands', id)
    if packed then
      redis.call('LREM', prefix .. 'worker_commands:' .. cmsgpack.unpack(packed)[2], 0, id)
    end
  end
  call_in_slices('HDEL', prefix .. 'commands', expired)
  call_in_slices('ZREM', prefix .. 'command_expiry', expired)
  return #expired
end

-- A bucket is full later than expected if its rate was lowered.
local function prune_buckets(max_rows)
  local expired = redis.call('ZRANGEBYSCORE', prefix .. 'rate_bucket_expiry', '-inf', now, 'LIMIT', 0, max_rows)
  for _, scope in ipairs(expired) do
    local limit = limit_of(scope)
    local is_rated = limit and limit[L_RATE]
    local parts, at
    if is_rated then
      parts, at = load_bucket(limit, scope)
    end
    if is_rated and refilled_parts(limit, parts, at) < limit[L_BURST_SIZE] * limit[L_PER_MS] then
      save_bucket(scope, limit, parts, at)
    else
      redis.call('HDEL', prefix .. 'rate_buckets', scope)
      redis.call('ZREM', prefix .. 'rate_bucket_expiry', scope)
    end
  end
  return #expired
end

local function prune_workers()
  local all = redis.call('HGETALL', prefix .. 'workers')
  for i = 1, #all, 2 do
    if cmsgpack.unpack(all[i + 1])[7] <= now - request.workers_retention_ms then
      redis.call('HDEL', prefix .. 'workers', all[i])
    end
  end
end

prune_workers()
local events = prune_events()
local lines = prune_audit(request.limit - events)
local commands = prune_commands(request.limit - events - lines)
return events + lines + commands + prune_buckets(request.limit - events - lines - commands)
