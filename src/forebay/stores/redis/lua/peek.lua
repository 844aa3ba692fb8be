#!lua flags=no-writes
-- peek: pending jobs that a claim would take next, in order. Jobs in lanes are left out.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: queue, limit
-- Returns rows.
local MAX_PASSED = 2000
local queue = load_queue(request.queue)
if not queue then
  return {}
end
local orders, jobs, passed = claim_orders(request.queue, queue, {}), {}, 0
while #jobs < request.limit and passed < request.limit + MAX_PASSED do
  passed = passed + 1
  local order, entry = best_candidate(orders, request.limit)
  if not order then
    break
  end
  order.at = order.at + 1
  local job = load_job(id_in(entry))
  if job and not (job.header[EXPIRES_AT] and job.header[EXPIRES_AT] <= now) then
    jobs[#jobs + 1] = job
  end
end
return job_rows(jobs)
