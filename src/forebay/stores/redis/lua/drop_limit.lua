#!lua flags=allow-oom
-- drop_limit: remove the limit of a scope.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: scope, actor
-- Returns 1, or 0 if there was none.
local packed = redis.call('HGET', prefix .. 'limits', request.scope)
if not packed then
  return 0
end
redis.call('HDEL', prefix .. 'limits', request.scope)
recheck_lanes(function(scope) return scope == request.scope or string.match(scope, '^key:[^:]*') == request.scope end)
local changes = limit_changes(cmsgpack.unpack(packed), {})
new_events[#new_events + 1] = {
  'limit_changed', now, false, false, false, request.actor, 'removed ' .. request.scope, changes,
}
needs_wakeup = true
return finish(1)
