#!lua flags=no-writes
-- Rows of metrics of one tier in a span of time, up to the start at which there are enough.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: tier, since, before, limit
-- Returns starts, and for each of them the fields (queue and worker) and what they say, in no order.
local resolution = string.format('%.0f', request.resolution_ms)
local starts = redis.call(
  'ZRANGE', prefix .. 'metric_starts:' .. resolution, request.since, '(' .. string.format('%.0f', request.before), 'BYSCORE',
  'LIMIT', 0, request.limit
)
local times, found, rows = {}, {}, 0
for _, start in ipairs(starts) do
  if rows >= request.limit then
    break
  end
  local fields = redis.call('HGETALL', prefix .. 'metrics:' .. resolution .. ':' .. start)
  times[#times + 1], found[#found + 1] = start, fields
  rows = rows + #fields / 2
end
return {times, found}
