#!lua flags=allow-oom
-- Remove a schedule with its history.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: name, actor
-- Returns 1, or 0 if there was none.
if not forget_schedule(ask.name) then
  return 0
end
told[#told + 1] = {'schedule', now, false, false, false, ask.actor, 'removed ' .. ask.name}
return finish(1)
