#!lua
-- Set the limit of a scope. What is left of its rate stays left, as far as there is room for it.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: scope, limit (concurrency, rate, per_ms, burst, most at once), actor
-- Returns 1.
local limit = ask.limit
local packed = redis.call('HGET', prefix .. 'limits', ask.scope)
local old = packed and cmsgpack.unpack(packed)
local most = limit[L_MOST] * limit[L_PER_MS]
limit[L_PARTS], limit[L_AT] = most, now
if old and old[L_RATE] and limit[L_RATE] then
  limit[L_PARTS] = math.min(most, math.floor(filled(old) * limit[L_PER_MS] / old[L_PER_MS]))
end
redis.call('HSET', prefix .. 'limits', ask.scope, cmsgpack.pack(limit))
told[#told + 1] = {'limit', now, false, false, false, ask.actor, 'saved ' .. ask.scope}
has_news = true
return finish(1)
