#!lua flags=no-writes
-- What has become of jobs, wherever they are. Their bodies are not touched: a payload may have a megabyte.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: ids
-- Returns id, head and the last bad attempt of each, without those that are not there.
load(ask.ids)
local fates, seen = {}, {}
for _, id in ipairs(ask.ids) do
  local job = loaded[id]
  if job and not seen[id] then
    seen[id] = true
    local errors = job.head[ERRORS] > 0 and redis.call('LRANGE', prefix .. 'attempts:' .. id, -1, -1)
    fates[#fates + 1] = {id, job.packed, errors and errors[1] or false}
  end
end
return fates
