#!lua flags=no-writes
-- How many jobs run under each limit: those with a lease that has not ended.
-- KEYS: 1 the namespace
-- ARGV: 1 an empty request
-- Returns the time, and {scope, the limit as it is stored, how many run} for each; of a key for all its values together.
local running, answers = {}, {}

local function running_by(scope)
  local gauge = gauge_of(scope)
  look_closer(gauge)
  return running_under(gauge)
end

for _, scope in ipairs(has_limits() and redis.call('HKEYS', prefix .. 'places') or {}) do
  local kind = string.match(scope, '^key:[^:]*')
  if kind and limits[kind] then
    running[kind] = (running[kind] or 0) + running_by(scope)
  end
end
local stored_limits = redis.call('HGETALL', prefix .. 'limits')
for i = 1, #stored_limits, 2 do
  local scope = stored_limits[i]
  local queue = string.match(scope, '^queue:(.*)$')
  if scope == 'global' or queue then
    running[scope] = running_in(queue)
  elseif string.find(scope, '^task:') then
    running[scope] = running_by(scope)
  end
  answers[#answers + 1] = {scope, stored_limits[i + 1], running[scope] or 0}
end
return {now, answers}
