-- The server's clock in milliseconds. Tests put a clock of their own in the place of this file.
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
