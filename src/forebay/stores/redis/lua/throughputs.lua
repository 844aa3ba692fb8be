#!lua flags=no-writes
-- throughputs: number of jobs of some queues completed in a window.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: queues, window_ms
-- Returns a number for each queue.
local completed = {}
for i, name in ipairs(request.queues) do
  completed[i] = completed_since(name, now - request.window_ms)
end
return completed
