#!lua flags=no-writes
-- Lines of the chain from behind a position on.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: limit, after (a position)
-- Returns links and lines. Positions have no gaps, so the first one says where the wanted ones stand in the list.
local first_link = redis.call('LINDEX', prefix .. 'audit_chain', 0)
local skipped = first_link and math.max(0, request.after + 1 - cmsgpack.unpack(first_link)[1])
if not first_link or skipped >= redis.call('LLEN', prefix .. 'audit_chain') then
  return {{}, {}}
end
local links = redis.call('LRANGE', prefix .. 'audit_chain', skipped, skipped + request.limit - 1)
local numbers = {}
for i, link in ipairs(links) do
  numbers[i] = string.format('%.0f', cmsgpack.unpack(link)[4])
end
return {links, fetch('HMGET', numbers, prefix .. 'audit')}
