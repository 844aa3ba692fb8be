#!lua flags=no-writes
-- How many jobs of queues were completed lately.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: queues, pace_ms
-- Returns a number for each.
local found = {}
for i, name in ipairs(request.queues) do
  found[i] = completed_since(name, now - request.window_ms)
end
return found
