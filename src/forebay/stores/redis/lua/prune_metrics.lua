#!lua flags=allow-oom
-- prune_metrics: remove the oldest rows of one resolution, up to the start with which the limit is reached.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: resolution_ms, before, limit
-- Returns the number of rows removed.
local resolution = string.format('%.0f', request.resolution_ms)
local starts_key = prefix .. 'metric_starts:' .. resolution
local before = '(' .. string.format('%.0f', request.before)
local removed = 0
for _, start in ipairs(redis.call('ZRANGEBYSCORE', starts_key, '-inf', before, 'LIMIT', 0, request.limit)) do
  if removed >= request.limit then
    break
  end
  local key = prefix .. 'metrics:' .. resolution .. ':' .. start
  removed = removed + redis.call('HLEN', key)
  redis.call('UNLINK', key)
  redis.call('ZREM', starts_key, start)
end
return removed
