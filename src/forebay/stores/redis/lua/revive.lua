#!lua
-- revive: make dead and cancelled jobs live again.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: ids, queue, delay_ms, reset, actor, dependants, ended_before, default_queue (a queue without
--   settings)
-- Returns for each job {applied, state, reason}.
local results, reasons = {}, {}
load_jobs(request.ids)
-- All jobs are checked before the first is revived, so that children know which parents will live.
for i, id in ipairs(request.ids) do
  local job = load_job(id)
  local target = job and (request.queue or job.header[QUEUE])
  if job and not revived_together[id] then
    reasons[i] = revive_refusal(job, target)
    revived_together[id] = not reasons[i]
    if revived_together[id] and job.header[UNIQUE_KEY] then
      set_unique(target, job.header[UNIQUE_KEY], id)
    end
  end
end
local revived = {}
for i, id in ipairs(request.ids) do
  local job = load_job(id)
  local target = job and (request.queue or job.header[QUEUE])
  local is_first = revived_together[id] and not revived[id]
  -- An id that is named twice is checked again.
  local reason = reasons[i] or (revived[id] and revive_refusal(job, target))
  if is_first then
    revived[id] = true
    revive_job(job, target, MET)
  end
  results[i] = {is_first and 1 or 0, job and job.header[STATE], reason or ''}
end
return finish(results)
