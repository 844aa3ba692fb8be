#!lua flags=no-writes
-- audit: audit entries, and events that are no operator actions, newest first.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: limit, after (an id, false for the newest)
-- Returns ids and entries of the audit log, then ids and events. Both use one series of ids.
local below = request.after and '(' .. string.format('%.0f', request.after) or '+inf'

local function newest(key)
  return redis.call('ZRANGE', prefix .. key, below, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, request.limit)
end

local lines, events = newest('audit_order'), newest('event_ids')
return {lines, fetch('HMGET', lines, prefix .. 'audit'), events, fetch('HMGET', events, prefix .. 'events')}
