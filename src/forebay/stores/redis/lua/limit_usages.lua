#!lua flags=no-writes
-- limit_usages: number of running jobs under each limit, counting leases that have not ended.
-- KEYS: 1 the namespace
-- ARGV: 1 an empty request
-- Returns the time, and {scope, stored limit, running jobs} for each limit. A limit by key counts all its values
--   together.
local running, answers = {}, {}

local function count_running_in(scope)
  local counter = load_counter(scope)
  check_leases(counter)
  return count_under(counter)
end

for _, scope in ipairs(has_limits() and redis.call('HKEYS', prefix .. 'limit_slots') or {}) do
  local kind = string.match(scope, '^key:[^:]*')
  if kind and limit_cache[kind] then
    running[kind] = (running[kind] or 0) + count_running_in(scope)
  end
end
local stored_limits = redis.call('HGETALL', prefix .. 'limits')
for i = 1, #stored_limits, 2 do
  local scope = stored_limits[i]
  local queue = string.match(scope, '^queue:(.*)$')
  if scope == 'global' or queue then
    running[scope] = count_running(queue)
  elseif string.find(scope, '^task:') then
    running[scope] = count_running_in(scope)
  end
  answers[#answers + 1] = {scope, stored_limits[i + 1], running[scope] or 0}
end
return {now, answers}
