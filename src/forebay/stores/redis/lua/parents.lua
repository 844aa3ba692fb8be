#!lua flags=no-writes
-- parents: edges from children to their parents.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: ids
-- Returns {child, position, parent, failure policy, state} for each edge, in the order of the ids.
local rows = {}
for _, id in ipairs(request.ids) do
  local is_unblocked = redis.call('HEXISTS', prefix .. 'unmet', id) == 0
  local edges = parent_edges(id)
  for i = 1, #edges, 2 do
    local on_failure, parent = string.match(edges[i + 1], '^(%a+) (.*)$')
    local state = tonumber(redis.call('ZSCORE', prefix .. 'children:' .. parent, edge_member(id, edges[i])))
    if state == OPEN and (is_unblocked or is_met(parent)) then
      state = MET
    end
    rows[#rows + 1] = {id, tonumber(edges[i]), parent, on_failure, state}
  end
end
return rows
