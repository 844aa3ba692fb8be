#!lua flags=no-writes
-- The next jobs that a claim would take of those already pending, in order. Jobs behind gates are left out.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: queue, limit
-- Returns rows.
local LOOKS = 2000
local queue = queue_of(ask.queue)
if not queue then
  return {}
end
local orders, jobs, looks = orders_of(ask.queue, queue, {}), {}, 0
while #jobs < ask.limit and looks < ask.limit + LOOKS do
  looks = looks + 1
  local order, one = leading(orders, ask.limit)
  if not order then
    break
  end
  order.at = order.at + 1
  local job = find(id_in(one))
  if job and not (job.head[EXPIRES_AT] and job.head[EXPIRES_AT] <= now) then
    jobs[#jobs + 1] = job
  end
end
return rows_of(jobs)
