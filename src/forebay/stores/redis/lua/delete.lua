#!lua flags=allow-oom
-- delete: remove jobs that are not running, with their unique keys and history.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: ids, actor
-- Returns for each job {applied, state, reason}.
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
    local state = job.header[STATE]
    add_event('deleted', job, request.actor, false, state, changes_json({{'state', state, false}}))
    results[i] = {1, false, ''}
  end
end
return finish(results)
