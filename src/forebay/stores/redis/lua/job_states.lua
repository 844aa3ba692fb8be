#!lua flags=no-writes
-- What has become of jobs, wherever they are. Their bodies are not touched: a payload may have a megabyte.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: ids
-- Returns id, head and the last bad attempt of each, without those that are not there.
load_jobs(request.ids)
local rows, seen = {}, {}
for _, id in ipairs(request.ids) do
  local job = loaded_jobs[id]
  if job and not seen[id] then
    seen[id] = true
    local errors = job.header[ERRORS] > 0 and redis.call('LRANGE', prefix .. 'failed_attempts:' .. id, -1, -1)
    rows[#rows + 1] = {id, job.packed, errors and errors[1] or false}
  end
end
return rows
