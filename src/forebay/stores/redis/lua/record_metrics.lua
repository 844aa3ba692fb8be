#!lua
-- record_metrics: store rows of metrics, replacing rows of the same key, and remove the rows that they sum up.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: rows, removed (each resolution, start, queue, worker). 2... value of each row
-- Returns nothing.
local function key_of(row)
  return prefix .. string.format('metrics:%.0f:%.0f', row[1], row[2])
end

local function starts_of(row)
  return prefix .. string.format('metric_starts:%.0f', row[1])
end

for i, row in ipairs(request.rows) do
  redis.call('HSET', key_of(row), row[3] .. ' ' .. row[4], ARGV[i + 1])
  redis.call('ZADD', starts_of(row), row[2], string.format('%.0f', row[2]))
end
for _, row in ipairs(request.removed) do
  redis.call('HDEL', key_of(row), row[3] .. ' ' .. row[4])
  if redis.call('EXISTS', key_of(row)) == 0 then
    redis.call('ZREM', starts_of(row), string.format('%.0f', row[2]))
  end
end
