#!lua flags=no-writes
-- How many jobs wait behind which gates.
-- KEYS: 1 the namespace
-- ARGV: 1 an empty request
-- Returns {queue, gate, jobs} by queue and gate.
local found = {}
for _, name in ipairs(queue_names()) do
  for _, gate in ipairs(all_gates_of(name)) do
    local jobs = redis.call('ZCARD', ready_key(name, gate, false))
      + redis.call('ZCARD', ready_key(name, gate, true))
    if jobs > 0 then
      found[#found + 1] = {name, gate, jobs}
    end
  end
end
return found
