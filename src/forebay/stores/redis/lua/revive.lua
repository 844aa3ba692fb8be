#!lua
-- Put dead and cancelled jobs back.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: ids, queue, delay_ms, reset, actor, dependants, ended_before, fresh (a queue that nobody has
--   configured)
-- Returns for each job {done, state, reason}.
local verdicts, reasons = {}, {}
load(ask.ids)
-- All are judged before the first is put back, so that children know which of their parents will live.
for i, id in ipairs(ask.ids) do
  local job = find(id)
  local target = job and (ask.queue or job.head[QUEUE])
  if job and not together[id] then
    reasons[i] = why_not_revived(job, target)
    together[id] = not reasons[i]
    if together[id] and job.head[UNIQUE_KEY] then
      set_unique(target, job.head[UNIQUE_KEY], id)
    end
  end
end
local revived = {}
for i, id in ipairs(ask.ids) do
  local job = find(id)
  local target = job and (ask.queue or job.head[QUEUE])
  local is_first = together[id] and not revived[id]
  -- What is named twice is looked at again.
  local reason = reasons[i] or (revived[id] and why_not_revived(job, target))
  if is_first then
    revived[id] = true
    revive(job, target, MET)
  end
  verdicts[i] = {is_first and 1 or 0, job and job.head[STATE], reason or ''}
end
return finish(verdicts)
