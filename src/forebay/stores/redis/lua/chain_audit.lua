#!lua flags=allow-oom
-- Append links to the chain of the audit log, unless another program has appended since the caller looked.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: head (the last position that was seen), links (position, previous, hash, number)
-- Returns how many links were appended.
local last = redis.call('LINDEX', prefix .. 'audit_chain', -1)
if (last and cmsgpack.unpack(last)[1] or 0) ~= ask.head then
  return 0
end
for _, link in ipairs(ask.links) do
  redis.call('RPUSH', prefix .. 'audit_chain', cmsgpack.pack(link))
end
return #ask.links
