#!lua flags=allow-oom
-- Remove a schedule with its history.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: name, revision (of what was seen), actor, changes
-- Returns 1, or 0 if it has another revision by now.
local known = load_schedule(request.name)
if not known or known[S_REVISION] ~= request.revision then
  return 0
end
delete_schedule(request.name)
new_events[#new_events + 1] = {'schedule', now, false, false, false, request.actor, 'removed ' .. request.name, request.changes}
return finish(1)
