#!lua flags=allow-oom
-- renew: push lease ends away.
-- Guarantees: a lease end never moves back, nor beyond the attempt's extension.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: worker, leases {id, attempt}, lease_ms
-- Returns for each lease why it was refused, or '', and the worker's cancel requests.
local worker = request.worker
local ids, answers, new_ends = {}, {}, {}
for i, lease in ipairs(request.leases) do
  ids[i] = lease[1]
end
load_jobs(ids)

for i, lease in ipairs(request.leases) do
  local job = load_job(lease[1])
  local reason = lease_refusal(job, lease[2], worker)
  if not reason and now >= job.header[STARTED_AT] + job.header[EXTENSION_MS] then
    reason = 'extension over'
  end
  answers[i] = reason or ''
  if not reason then
    local header = job.header
    local queue = load_queue(header[QUEUE])
    local lease_ms = request.lease_ms or header[LEASE_MS] or queue[Q_LEASE_MS]
    new_ends[#new_ends + 1] = math.min(now + lease_ms, header[STARTED_AT] + header[EXTENSION_MS])
    new_ends[#new_ends + 1] = member_of_job(job)
  end
end
for first = 1, #new_ends, SLICE do
  local last = math.min(first + SLICE - 1, #new_ends)
  redis.call('ZADD', prefix .. 'leases:' .. worker, 'XX', 'GT', unpack(new_ends, first, last))
end
return {answers, pending_cancels(worker)}
