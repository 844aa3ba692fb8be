#!lua flags=allow-oom
-- Remove the oldest rows of metrics of one tier, up to the start at which there are enough.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: tier, before, limit
-- Returns how many went.
local tier = string.format('%.0f', ask.tier)
local list = prefix .. 'metric_starts:' .. tier
local before = '(' .. string.format('%.0f', ask.before)
local went = 0
for _, start in ipairs(redis.call('ZRANGEBYSCORE', list, '-inf', before, 'LIMIT', 0, ask.limit)) do
  if went >= ask.limit then
    break
  end
  local key = prefix .. 'metrics:' .. tier .. ':' .. start
  went = went + redis.call('HLEN', key)
  redis.call('UNLINK', key)
  redis.call('ZREM', list, start)
end
return went
