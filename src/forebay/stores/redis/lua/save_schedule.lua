#!lua
-- save_schedule: write a schedule that the caller has computed from its copy.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: name, schedule, revision (of the caller's copy, 0 for none), actor, changes
-- Returns 1, or 0 if the revision has changed.
local known = load_schedule(request.name)
if (known and known[S_REVISION] or 0) ~= request.revision then
  return 0
end
local schedule = request.schedule
schedule[S_REVISION] = request.revision + 1
schedule[S_CREATED_AT] = known and known[S_CREATED_AT] or now
schedule[S_UPDATED_AT] = now
store_schedule(request.name, schedule)
new_events[#new_events + 1] = {
  'schedule_changed', now, false, false, false, request.actor, 'saved ' .. request.name, request.changes,
}
needs_wakeup = true
return finish(1)
