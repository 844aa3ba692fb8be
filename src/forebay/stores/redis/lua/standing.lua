#!lua flags=no-writes
-- How leases stand.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: worker, leases {id, attempt}
-- Returns for each lease why it is not held, or ''.
local answers = {}
for i, lease in ipairs(ask.leases) do
  answers[i] = why_not_held(find(lease[1]), lease[2], ask.worker) or ''
end
return answers
