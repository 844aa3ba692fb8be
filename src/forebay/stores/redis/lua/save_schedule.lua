#!lua
-- Write a schedule that the caller has worked out from what it saw.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: name, schedule, revision (of what was seen, 0 for none), actor,
--       changes
-- Returns 1, or 0 if it has another revision by now.
local known = schedule_of(ask.name)
if (known and known[S_REVISION] or 0) ~= ask.revision then
  return 0
end
local schedule = ask.schedule
schedule[S_REVISION] = ask.revision + 1
schedule[S_CREATED_AT] = known and known[S_CREATED_AT] or now
schedule[S_UPDATED_AT] = now
put_schedule(ask.name, schedule)
told[#told + 1] = {'schedule', now, false, false, false, ask.actor, 'saved ' .. ask.name, ask.changes}
has_news = true
return finish(1)
