#!lua flags=no-writes
-- The edges that lead from jobs.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: ids
-- Returns {child, number, parent, what its failure means, state} for each.
local rows = {}
for _, parent in ipairs(ask.ids) do
  local all = redis.call('ZRANGE', prefix .. 'behind:' .. parent, 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do
    local id, number = string.match(all[i], '^(.*)%z(%d+)$')
    local how = redis.call('HGET', prefix .. 'edges:' .. id, tonumber(number))
    rows[#rows + 1] = {id, tonumber(number), parent, string.match(how or '', '^%a+'), tonumber(all[i + 1])}
  end
end
return rows
