#!lua flags=no-writes
-- audit_rest: audit entries that are not chained yet.
-- Guarantees: ids are given by scripts, which run one by one, so no entry ever gets an id below a chained one.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: limit
-- Returns the last link (false for none), the number of entries behind it, and ids and entries of the first of them.
local last_link = redis.call('LINDEX', prefix .. 'audit_chain', -1)
local above = last_link and '(' .. string.format('%.0f', cmsgpack.unpack(last_link)[4]) or '-inf'
local numbers = redis.call('ZRANGE', prefix .. 'audit_order', above, '+inf', 'BYSCORE', 'LIMIT', 0, request.limit)
local lines = redis.call('ZCOUNT', prefix .. 'audit_order', above, '+inf')
return {last_link, lines, numbers, fetch('HMGET', numbers, prefix .. 'audit')}
