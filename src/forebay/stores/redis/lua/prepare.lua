#!lua flags=allow-oom
-- prepare: write this layout into a new namespace. A namespace with a layout stays as it is.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: number, readable_from, name
-- Returns the number of the namespace's layout, the oldest layout that programs must know, the name of its first
--   layout, and 1 if the namespace is new.
local key = prefix .. 'schema'
local is_new = redis.call('HSETNX', key, 'number', request.number)
if is_new == 1 then
  redis.call('HSET', key, 'readable_from', request.readable_from, 'name', request.name)
end
local known = redis.call('HMGET', key, 'number', 'readable_from', 'name')
return {known[1], known[2], known[3], is_new}
