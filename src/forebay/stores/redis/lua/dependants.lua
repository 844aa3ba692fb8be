#!lua flags=no-writes
-- dependants: edges from parents to their children.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: ids
-- Returns {child, position, parent, failure policy, state} for each edge.
local rows = {}
for _, parent in ipairs(request.ids) do
  local edges = redis.call('ZRANGE', prefix .. 'children:' .. parent, 0, -1, 'WITHSCORES')
  local is_parent_met = #edges > 0 and is_met(parent)
  for i = 1, #edges, 2 do
    local id, number = string.match(edges[i], '^(.*)%z(%d+)$')
    local state = tonumber(edges[i + 1])
    state = state == OPEN and is_parent_met and MET or state
    rows[#rows + 1] = {id, tonumber(number), parent, failure_policy(id, tonumber(number)), state}
  end
end
return rows
