#!lua flags=no-writes
-- Rows of metrics of one tier in a span of time, up to the start at which there are enough.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: tier, since, before, limit
-- Returns starts, and for each of them the fields (queue and worker) and what they say, in no order.
local tier = string.format('%.0f', ask.tier)
local starts = redis.call(
  'ZRANGE', prefix .. 'metric_starts:' .. tier, ask.since, '(' .. string.format('%.0f', ask.before), 'BYSCORE',
  'LIMIT', 0, ask.limit
)
local times, found, rows = {}, {}, 0
for _, start in ipairs(starts) do
  if rows >= ask.limit then
    break
  end
  local all = redis.call('HGETALL', prefix .. 'metrics:' .. tier .. ':' .. start)
  times[#times + 1], found[#found + 1] = start, all
  rows = rows + #all / 2
end
return {times, found}
