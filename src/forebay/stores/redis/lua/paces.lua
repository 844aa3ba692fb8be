#!lua flags=no-writes
-- How many jobs of queues were completed lately.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: queues, pace_ms
-- Returns a number for each.
local found = {}
for i, name in ipairs(ask.queues) do
  found[i] = completed_since(name, now - ask.pace_ms)
end
return found
