#!lua flags=no-writes
-- Events of all jobs and queues, newest first.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: limit, after (a number, false for the newest)
-- Returns their numbers and the events.
local below = ask.after and '(' .. string.format('%.0f', ask.after) or '+inf'
local numbers = redis.call(
  'ZRANGE', prefix .. 'event_order', below, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, ask.limit
)
return {numbers, fetch('HMGET', numbers, prefix .. 'events')}
