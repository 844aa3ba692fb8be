#!lua flags=no-writes
-- metrics: rows of one resolution in a span of time, up to the start with which the limit is reached.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: resolution_ms, since, before, limit
-- Returns starts, and for each the fields (queue and worker) and their values, unordered.
local resolution = string.format('%.0f', request.resolution_ms)
local starts = redis.call(
  'ZRANGE', prefix .. 'metric_starts:' .. resolution, request.since, '(' .. string.format('%.0f', request.before),
  'BYSCORE', 'LIMIT', 0, request.limit
)
local times, values, rows = {}, {}, 0
for _, start in ipairs(starts) do
  if rows >= request.limit then
    break
  end
  local fields = redis.call('HGETALL', prefix .. 'metrics:' .. resolution .. ':' .. start)
  times[#times + 1], values[#values + 1] = start, fields
  rows = rows + #fields / 2
end
return {times, values}
