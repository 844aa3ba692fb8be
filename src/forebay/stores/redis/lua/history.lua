#!lua flags=no-writes
-- All that is known about one job.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: id
-- Returns {row, attempts, events, progress, lines, steps}; nothing for a job that is not there.
local job = find(ask.id)
if not job then
  return false
end
local numbers = redis.call('LRANGE', prefix .. 'events_of:' .. ask.id, 0, -1)
return {
  rows_of({job})[1],
  redis.call('LRANGE', prefix .. 'attempts:' .. ask.id, 0, -1),
  #numbers > 0 and redis.call('HMGET', prefix .. 'events', unpack(numbers)) or {},
  redis.call('GET', prefix .. 'notes:' .. ask.id),
  redis.call('LRANGE', prefix .. 'lines:' .. ask.id, 0, -1),
  redis.call('HGETALL', prefix .. 'steps:' .. ask.id),
}
