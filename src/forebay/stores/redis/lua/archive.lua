#!lua flags=no-writes
-- Lines about pruned jobs of one queue, last ended first.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: queue, from, below (times; false for none), skip, limit
-- Returns their numbers, the times at which they ended, and the lines.
local below = ask.below and '(' .. string.format('%.0f', ask.below) or '+inf'
local from = ask.from and string.format('%.0f', ask.from) or '-inf'
local found = redis.call(
  'ZRANGE', prefix .. 'archived:' .. ask.queue, below, from, 'BYSCORE', 'REV',
  'LIMIT', ask.skip, ask.limit, 'WITHSCORES'
)
local numbers, times = {}, {}
for i = 1, #found, 2 do
  numbers[#numbers + 1] = string.format('%.0f', found[i])
  times[#times + 1] = tonumber(found[i + 1])
end
return {numbers, times, fetch('HMGET', numbers, prefix .. 'archive')}
