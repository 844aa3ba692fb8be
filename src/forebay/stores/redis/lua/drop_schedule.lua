#!lua flags=allow-oom
-- Remove a schedule with its history.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: name, revision (of what was seen), actor, changes
-- Returns 1, or 0 if it has another revision by now.
local known = schedule_of(ask.name)
if not known or known[S_REVISION] ~= ask.revision then
  return 0
end
forget_schedule(ask.name)
told[#told + 1] = {'schedule', now, false, false, false, ask.actor, 'removed ' .. ask.name, ask.changes}
return finish(1)
