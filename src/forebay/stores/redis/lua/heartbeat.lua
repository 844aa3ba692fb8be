#!lua flags=allow-oom
-- heartbeat: record that a worker is alive.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: worker (id, host, pid, queues, state, started_at, heartbeat_at, details)
-- Returns nothing. The start time stays that of the first heartbeat.
local row = request.worker
local known = redis.call('HGET', prefix .. 'workers', row[1])
if known then
  row[6] = cmsgpack.unpack(known)[6]
elseif row[6] == 0 then
  row[6] = now
end
row[7] = now
redis.call('HSET', prefix .. 'workers', row[1], cmsgpack.pack(row))
