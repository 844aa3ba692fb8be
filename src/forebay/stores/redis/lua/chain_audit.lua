#!lua flags=allow-oom
-- Append links to the chain of the audit log, unless another program has appended since the caller looked.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: head (the last position that was seen), links (position, previous, hash, number)
-- Returns how many links were appended.
local last_link = redis.call('LINDEX', prefix .. 'audit_chain', -1)
if (last_link and cmsgpack.unpack(last_link)[1] or 0) ~= request.last_position then
  return 0
end
for _, link in ipairs(request.links) do
  redis.call('RPUSH', prefix .. 'audit_chain', cmsgpack.pack(link))
end
return #request.links
