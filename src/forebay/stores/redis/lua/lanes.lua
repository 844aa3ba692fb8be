#!lua flags=no-writes
-- How many jobs wait behind which gates.
-- KEYS: 1 the namespace
-- ARGV: 1 an empty request
-- Returns {queue, gate, jobs} by queue and gate.
local lanes = {}
for _, name in ipairs(queue_names()) do
  for _, lane in ipairs(all_lanes(name)) do
    local jobs = redis.call('ZCARD', ready_key(name, lane, false))
      + redis.call('ZCARD', ready_key(name, lane, true))
    if jobs > 0 then
      lanes[#lanes + 1] = {name, lane, jobs}
    end
  end
end
return lanes
