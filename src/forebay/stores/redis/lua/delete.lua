#!lua flags=allow-oom
-- Remove jobs that are not running, with their unique key and their history.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: ids, actor
-- Returns for each job {done, state, reason}.
local verdicts = {}
load(ask.ids)
for i, id in ipairs(ask.ids) do
  local job = find(id)
  if not job then
    verdicts[i] = {0, false, ''}
  elseif job.head[STATE] == 'running' then
    verdicts[i] = {0, 'running', 'it is running'}
  else
    remove(job)
    tell('deleted', job, ask.actor, false, job.head[STATE], changed({{'state', job.head[STATE], false}}))
    verdicts[i] = {1, false, ''}
  end
end
return finish(verdicts)
