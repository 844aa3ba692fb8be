#!lua flags=no-writes
-- job_states: state of jobs, final ones included.
-- Cost: bodies are not read, since a payload may have a megabyte.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: ids
-- Returns id, header and last failed attempt of each job that exists.
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
