#!lua
-- Set the limit of a scope. What is left of its rate stays left, as far as there is room for it.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: scope, limit (concurrency, rate, per_ms, burst, most at once), actor
-- Returns 1.
local limit = ask.limit
local packed = redis.call('HGET', prefix .. 'limits', ask.scope)
local old = packed and cmsgpack.unpack(packed)
local most = limit[L_MOST] * limit[L_PER_MS]
-- Buckets of a key from before are of another limit, or of one that had no rate meanwhile: all are full.
limit[L_PARTS], limit[L_AT], limit[L_SINCE] = most, now, now
if old and old[L_RATE] and limit[L_RATE] then
  limit[L_SINCE] = old[L_SINCE] or 0
  local left = filled(old, old[L_PARTS], old[L_AT])
  limit[L_PARTS] = math.min(most, math.floor(left * limit[L_PER_MS] / old[L_PER_MS]))
end
redis.call('HSET', prefix .. 'limits', ask.scope, cmsgpack.pack(limit))
look_behind(function(scope) return scope == ask.scope or string.match(scope, '^key:[^:]*') == ask.scope end)
told[#told + 1] = {'limit', now, false, false, false, ask.actor, 'saved ' .. ask.scope, limit_changes(old or {}, limit)}
has_news = true
return finish(1)
