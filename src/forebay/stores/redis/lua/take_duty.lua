#!lua flags=allow-oom
-- Whether the caller shall do this duty now.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: name, every_ms
-- Returns 1 or 0.
local next_at = tonumber(redis.call('HGET', prefix .. 'duties', ask.name) or 0)
-- A time further ahead than the duty's own pace was written before the clock was set back.
if now < next_at and next_at <= now + ask.every_ms then
  return 0
end
redis.call('HSET', prefix .. 'duties', ask.name, now + ask.every_ms)
return 1
