#!lua flags=allow-oom
-- Note the number of this layout in a namespace that is new.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: number, readable_from
-- Returns the number that the namespace has, the oldest one that programs must know to work with it, and 1 if it is new.
local is_new = redis.call('HSETNX', prefix .. 'schema', 'number', ask.number)
redis.call('HSETNX', prefix .. 'schema', 'readable_from', ask.readable_from)
local known = redis.call('HMGET', prefix .. 'schema', 'number', 'readable_from')
return {known[1], known[2], is_new}
