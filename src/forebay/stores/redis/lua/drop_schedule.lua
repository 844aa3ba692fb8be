#!lua flags=allow-oom
-- drop_schedule: remove a schedule with its runs.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: name, revision (as the caller read it), actor, changes
-- Returns 1, or 0 if the revision has changed.
local known = load_schedule(request.name)
if not known or known[S_REVISION] ~= request.revision then
  return 0
end
delete_schedule(request.name)
new_events[#new_events + 1] = {
  'schedule_changed', now, false, false, false, request.actor, 'removed ' .. request.name, request.changes,
}
return finish(1)
