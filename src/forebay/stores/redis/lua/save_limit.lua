#!lua
-- save_limit: set the limit of a scope. The tokens left stay, as far as the new burst allows.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: scope, limit (concurrency, rate, per_ms, burst, burst size), actor
-- Returns 1.
local limit = request.limit
local packed = redis.call('HGET', prefix .. 'limits', request.scope)
local old = packed and cmsgpack.unpack(packed)
local most = limit[L_BURST_SIZE] * limit[L_PER_MS]
-- Older buckets of a key belong to another limit, or to one that had no rate meanwhile: all count as full.
limit[L_PARTS], limit[L_REFILLED_AT], limit[L_SINCE], limit[L_CHANGES] = most, now, now, {}
if old and old[L_RATE] and limit[L_RATE] then
  limit[L_PARTS] = converted_parts(old, limit, refilled_parts(old, old[L_PARTS], old[L_REFILLED_AT]))
  limit[L_SINCE], limit[L_CHANGES] = old[L_SINCE] or 0, old[L_CHANGES] or {}
  if old[L_RATE] ~= limit[L_RATE] or old[L_PER_MS] ~= limit[L_PER_MS] or old[L_BURST_SIZE] ~= limit[L_BURST_SIZE] then
    table.insert(limit[L_CHANGES], {false, limit[L_RATE], limit[L_PER_MS], false, limit[L_BURST_SIZE], false, now})
  end
  if #limit[L_CHANGES] > MAX_CHANGES + 1 then
    table.remove(limit[L_CHANGES], 1)
  end
end
redis.call('HSET', prefix .. 'limits', request.scope, cmsgpack.pack(limit))
recheck_lanes(function(scope) return scope == request.scope or string.match(scope, '^key:[^:]*') == request.scope end)
local changes = limit_changes(old or {}, limit)
new_events[#new_events + 1] = {
  'limit_changed', now, false, false, false, request.actor, 'saved ' .. request.scope, changes,
}
needs_wakeup = true
return finish(1)
