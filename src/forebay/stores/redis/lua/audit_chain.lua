#!lua flags=no-writes
-- audit_chain: links of the audit chain behind a position.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: limit, after (a position)
-- Returns links and audit entries. Positions have no gaps, so the first link gives the list index of any other.
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
