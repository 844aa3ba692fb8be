#!lua flags=no-writes
-- The audit log, and events that are no actions, newest first.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: limit, after (a number, false for the newest)
-- Returns numbers and lines of the audit log, numbers and events; the two have one series of numbers.
local below = request.after and '(' .. string.format('%.0f', request.after) or '+inf'

local function newest(key)
  return redis.call('ZRANGE', prefix .. key, below, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, request.limit)
end

local lines, events = newest('audit_order'), newest('event_ids')
return {lines, fetch('HMGET', lines, prefix .. 'audit'), events, fetch('HMGET', events, prefix .. 'events')}
