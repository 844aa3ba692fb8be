#!lua flags=no-writes
-- The edges that lead to jobs.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: ids
-- Returns {child, number, parent, what its failure means, state} for each, by child as asked.
local rows = {}
for _, id in ipairs(ask.ids) do
  local is_free = redis.call('HEXISTS', prefix .. 'unmet', id) == 0
  local all = edges_of(id)
  for i = 1, #all, 2 do
    local how, parent = string.match(all[i + 1], '^(%a+) (.*)$')
    local state = tonumber(redis.call('ZSCORE', prefix .. 'behind:' .. parent, edge_name(id, all[i])))
    if state == OPEN and (is_free or is_met(parent)) then
      state = MET
    end
    rows[#rows + 1] = {id, tonumber(all[i]), parent, how, state}
  end
end
return rows
