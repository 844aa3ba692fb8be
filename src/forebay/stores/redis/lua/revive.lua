#!lua
-- Put dead and cancelled jobs back.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: ids, queue, delay_ms, reset, actor, dependants, fresh (a queue that nobody has configured)
-- Returns for each job {done, state, reason}.
local verdicts = {}
load(ask.ids)
for i, id in ipairs(ask.ids) do
  local job = find(id)
  local target = job and (ask.queue or job.head[QUEUE])
  local reason = job and why_not_revived(job, target)
  if job and not reason then
    revive(job, target, MET)
  end
  verdicts[i] = {job and not reason and 1 or 0, job and job.head[STATE], reason or ''}
end
return finish(verdicts)
