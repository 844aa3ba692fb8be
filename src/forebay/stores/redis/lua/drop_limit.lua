#!lua flags=allow-oom
-- Remove the limit of a scope.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: scope, actor
-- Returns 1, or 0 if there was none.
local packed = redis.call('HGET', prefix .. 'limits', ask.scope)
if not packed then
  return 0
end
redis.call('HDEL', prefix .. 'limits', ask.scope)
look_behind(function(scope) return scope == ask.scope or string.match(scope, '^key:[^:]*') == ask.scope end)
told[#told + 1] = {'limit', now, false, false, false, ask.actor, 'removed ' .. ask.scope, limit_changes(cmsgpack.unpack(packed), {})}
has_news = true
return finish(1)
