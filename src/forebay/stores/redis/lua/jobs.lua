#!lua flags=no-writes
-- jobs: jobs by id, final ones included.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: ids, is_bare (without payloads, results and errors)
-- Returns rows of the jobs that exist.
load_jobs(request.ids)
local jobs, seen = {}, {}
for _, id in ipairs(request.ids) do
  if loaded_jobs[id] and not seen[id] then
    seen[id] = true
    jobs[#jobs + 1] = loaded_jobs[id]
  end
end
return job_rows(jobs, request.is_bare)
