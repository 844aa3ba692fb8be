#!lua flags=no-writes
-- lease_status: check leases of a worker.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: worker, leases {id, attempt}
-- Returns for each lease why it is not held, or ''.
local answers = {}
for i, lease in ipairs(request.leases) do
  answers[i] = lease_refusal(load_job(lease[1]), lease[2], request.worker) or ''
end
return answers
