#!lua flags=allow-oom
-- chain_audit: append links to the audit chain.
-- Guarantees: nothing is appended if another program has appended since the caller read the chain.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: last_position (as the caller read it), links (position, previous hash, hash, entry id)
-- Returns the number of links appended.
local last_link = redis.call('LINDEX', prefix .. 'audit_chain', -1)
if (last_link and cmsgpack.unpack(last_link)[1] or 0) ~= request.last_position then
  return 0
end
for _, link in ipairs(request.links) do
  redis.call('RPUSH', prefix .. 'audit_chain', cmsgpack.pack(link))
end
return #request.links
