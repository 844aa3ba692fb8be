#!lua flags=no-writes
-- The edges that lead to jobs.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: ids
-- Returns {child, number, parent, what its failure means, state} for each, by child as asked.
local rows = {}
for _, id in ipairs(ask.ids) do
  local all = redis.call('HGETALL', prefix .. 'edges:' .. id)
  for i = 1, #all, 2 do
    local how, parent = string.match(all[i + 1], '^(%a+) (.*)$')
    local state = redis.call('ZSCORE', prefix .. 'behind:' .. parent, edge_name(id, all[i]))
    rows[#rows + 1] = {id, tonumber(all[i]), parent, how, tonumber(state)}
  end
end
return rows
