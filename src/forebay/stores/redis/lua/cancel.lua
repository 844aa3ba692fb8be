#!lua flags=allow-oom
-- cancel: cancel waiting jobs; store a cancel request for running jobs, or take their lease away by force.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: ids, reason, actor, force, dependants (whether all dependants are cancelled too)
-- Returns for each job {applied, state, reason}.
local results, forced = {}, {}
load_jobs(request.ids)
-- These entries come before those of the jobs' ends, which would release or kill some dependants.
if request.dependants then
  for _, id in ipairs(request.ids) do
    -- A completed job has met its edges, whatever their scores say.
    if not has_completed(id) then
      add_outbox_entry(id, 'cancel')
    end
  end
end
for i, id in ipairs(request.ids) do
  local job = load_job(id)
  if not job then
    results[i] = {0, false, ''}
  elseif FINAL[job.header[STATE]] then
    results[i] = {0, job.header[STATE], 'it is already ' .. job.header[STATE]}
  else
    local header = job.header
    if header[STATE] ~= 'running' then
      local changes = changes_json({{'state', header[STATE], 'cancelled'}})
      finish_job(job, 'cancelled', request.reason, false)
      add_event('cancel', job, request.actor, false, request.reason, changes)
    elseif request.force then
      unindex_job(job)
      -- The worker is removed, so that the old lease holder's settlement is refused and not taken for a repeated one.
      header[WORKER] = false
      finish_job(job, 'dead', request.reason, false)
      add_event('force_cancelled', job, request.actor, header[ATTEMPT], request.reason,
        changes_json({{'state', 'running', 'dead'}}))
      forced[#forced + 1] = id
    elseif not header[CANCEL_REASON] then
      header[CANCEL_REASON] = request.reason
      cancel_changes[id] = request.reason
      write_header(job)
      add_event('cancel', job, request.actor, false, request.reason)
    end
    needs_wakeup = true
    results[i] = {1, header[STATE], ''}
  end
end
free_slots(forced, {})
write_slots()
return finish(results)
