#!lua flags=allow-oom
-- Layout 5: actions of operators move from the events to the audit log. One step, so that no program sees half of it.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: number, readable_from (of the new layout)
-- Returns the number that the namespace has.
local known = tonumber(redis.call('HGET', prefix .. 'schema', 'number'))
if known ~= 4 then
  return known
end
local numbers = redis.call('ZRANGE', prefix .. 'event_order', 0, -1)
for i, packed in ipairs(fetch('HMGET', numbers, prefix .. 'events')) do
  local event = packed and cmsgpack.unpack(packed)
  if event and is_action(event) then
    write_action(event, numbers[i])
    redis.call('ZREM', prefix .. 'event_order', numbers[i])
    if not event[3] or event[1] == 'deleted' then
      forget_events({numbers[i]})
    end
  end
end
redis.call('HSET', prefix .. 'schema', 'number', ask.number, 'readable_from', ask.readable_from)
return ask.number
