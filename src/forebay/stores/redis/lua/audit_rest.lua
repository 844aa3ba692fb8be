#!lua flags=no-writes
-- Lines that are not part of the chain. Numbers are given by scripts, which run one by one: no line ever comes below one that
-- is chained.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: limit
-- Returns the last link (false for none), how many lines are behind it, and numbers and lines of the first of them.
local last_link = redis.call('LINDEX', prefix .. 'audit_chain', -1)
local above = last_link and '(' .. string.format('%.0f', cmsgpack.unpack(last_link)[4]) or '-inf'
local numbers = redis.call('ZRANGE', prefix .. 'audit_order', above, '+inf', 'BYSCORE', 'LIMIT', 0, request.limit)
local lines = redis.call('ZCOUNT', prefix .. 'audit_order', above, '+inf')
return {last_link, lines, numbers, fetch('HMGET', numbers, prefix .. 'audit')}
