#!lua flags=allow-oom
-- Remove jobs that are not running, with their unique key and their history.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: ids, actor
-- Returns for each job {done, state, reason}.
local results = {}
load_jobs(request.ids)
for i, id in ipairs(request.ids) do
  local job = load_job(id)
  if not job then
    results[i] = {0, false, ''}
  elseif job.header[STATE] == 'running' then
    results[i] = {0, 'running', 'it is running'}
  else
    remove_job(job)
    add_event('deleted', job, request.actor, false, job.header[STATE], changes_json({{'state', job.header[STATE], false}}))
    results[i] = {1, false, ''}
  end
end
return finish(results)
