#!lua
-- Put dead and cancelled jobs back.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: ids, queue, delay_ms, reset, actor, dependants, ended_before, fresh (a queue that nobody has
--   configured)
-- Returns for each job {done, state, reason}.
local results, reasons = {}, {}
load_jobs(request.ids)
-- All are judged before the first is put back, so that children know which of their parents will live.
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
  -- What is named twice is looked at again.
  local reason = reasons[i] or (revived[id] and revive_refusal(job, target))
  if is_first then
    revived[id] = true
    revive_job(job, target, MET)
  end
  results[i] = {is_first and 1 or 0, job and job.header[STATE], reason or ''}
end
return finish(results)
