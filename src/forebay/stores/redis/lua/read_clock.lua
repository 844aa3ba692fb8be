#!lua flags=allow-oom
-- read_clock: read the clock and record the reading in its slot.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: names (of the slots), period_ms, earlier_ms
-- Returns the time, and the latest recorded reading that is at least earlier_ms old, or false.
local slot = math.floor(now / request.period_ms) % #request.names + 1
local recorded = redis.call('HMGET', prefix .. 'maintenance', unpack(request.names))
local earlier = false
for _, reading in ipairs(recorded) do
  local at = tonumber(reading or nil)
  if at and at <= now - request.earlier_ms and (not earlier or at > earlier) then
    earlier = at
  end
end
local last = tonumber(recorded[slot] or nil)
-- A reading from the future was recorded before the clock was set back.
if not last or last < now - now % request.period_ms or last > now then
  redis.call('HSET', prefix .. 'maintenance', request.names[slot], now)
end
return finish({now, earlier})
