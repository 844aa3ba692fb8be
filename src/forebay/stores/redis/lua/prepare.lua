#!lua flags=allow-oom
-- Write this layout into a namespace that is new. Nothing is written into one that has a layout.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: number, readable_from, name
-- Returns the number of the namespace, the oldest layout that programs must know to work with it, the name of its first
-- layout, and 1 if it is new.
local key = prefix .. 'schema'
local is_new = redis.call('HSETNX', key, 'number', request.number)
if is_new == 1 then
  redis.call('HSET', key, 'readable_from', request.readable_from, 'name', request.name)
end
local known = redis.call('HMGET', key, 'number', 'readable_from', 'name')
return {known[1], known[2], known[3], is_new}
