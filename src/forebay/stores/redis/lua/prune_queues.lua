#!lua flags=allow-oom
-- prune_queues: remove archive entries and idempotency keys of some queues that have expired.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: queues, limit
-- Returns the number removed; `limit` means that there may be more.
local left = request.limit

local function take_expired(key, until_at)
  if left <= 0 then
    return {}
  end
  local old = redis.call('ZRANGEBYSCORE', key, '-inf', until_at, 'LIMIT', 0, left)
  if #old > 0 then
    redis.call('ZREM', key, unpack(old))
  end
  left = left - #old
  return old
end

for _, name in ipairs(request.queues) do
  local queue = load_queue(name)
  local keep_ms = queue and queue[Q_KEEP_ARCHIVE_MS] or 0
  local lines = keep_ms > 0 and take_expired(prefix .. 'archived:' .. name, now - keep_ms) or {}
  for i, number in ipairs(lines) do
    lines[i] = string.format('%.0f', number)
  end
  call_in_slices('HDEL', prefix .. 'archive', lines)
  call_in_slices('HDEL', prefix .. 'idempotency:' .. name, take_expired(prefix .. 'idempotency_until:' .. name, now))
end
return request.limit - left
