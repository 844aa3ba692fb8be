#!lua flags=no-writes
-- The edges that lead from jobs.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: ids
-- Returns {child, number, parent, what its failure means, state} for each.
local rows = {}
for _, parent in ipairs(ask.ids) do
  local all = redis.call('ZRANGE', prefix .. 'behind:' .. parent, 0, -1, 'WITHSCORES')
  local is_over = #all > 0 and is_met(parent)
  for i = 1, #all, 2 do
    local id, number = string.match(all[i], '^(.*)%z(%d+)$')
    local state = tonumber(all[i + 1])
    state = state == OPEN and is_over and MET or state
    rows[#rows + 1] = {id, tonumber(number), parent, policy_of(id, tonumber(number)), state}
  end
end
return rows
