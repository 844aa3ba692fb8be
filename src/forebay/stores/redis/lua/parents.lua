#!lua flags=no-writes
-- The edges that lead to jobs.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: ids
-- Returns {child, number, parent, what its failure means, state} for each, by child as asked.
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
