#!lua flags=no-writes
-- lanes: number of jobs in each lane.
-- KEYS: 1 the namespace
-- ARGV: 1 an empty request
-- Returns {queue, lane, jobs} by queue and lane.
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
