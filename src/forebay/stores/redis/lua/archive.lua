#!lua flags=no-writes
-- archive: archive entries of one queue, last ended first.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: queue, from, below (times; false for none), skip, limit
-- Returns the entry ids, the times at which the jobs ended, and the entries.
local below = request.below and '(' .. string.format('%.0f', request.below) or '+inf'
local from = request.from and string.format('%.0f', request.from) or '-inf'
local entries = redis.call(
  'ZRANGE', prefix .. 'archived:' .. request.queue, below, from, 'BYSCORE', 'REV',
  'LIMIT', request.skip, request.limit, 'WITHSCORES'
)
local numbers, times = {}, {}
for i = 1, #entries, 2 do
  numbers[#numbers + 1] = string.format('%.0f', entries[i])
  times[#times + 1] = tonumber(entries[i + 1])
end
return {numbers, times, fetch('HMGET', numbers, prefix .. 'archive')}
