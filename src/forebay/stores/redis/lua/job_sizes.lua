#!lua flags=no-writes
-- job_sizes: memory used by final jobs of one queue and state, last ended first.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: queue, state, skip (number of jobs before them), limit, room (bytes that they may take)
-- Returns how many of them fit, their bytes, and 1 if the next one does not fit.
local INDEX_BYTES = 200  -- a member of a sorted set and a field of a hash, roughly

local function memory(name)
  return redis.call('MEMORY', 'USAGE', prefix .. name) or 0
end

-- Most jobs have none of these keys, and one EXISTS for all four takes a third of the time.
local function memory_of_records(id)
  local names = {'failed_attempts:' .. id, 'progress:' .. id, 'logs:' .. id, 'steps:' .. id}
  local total = 0
  if redis.call('EXISTS', prefix .. names[1], prefix .. names[2], prefix .. names[3], prefix .. names[4]) > 0 then
    for _, name in ipairs(names) do
      total = total + memory(name)
    end
  end
  return total
end

local function job_size(job)
  local body = 'body:' .. string.format('%.0f', job.header[SEQ])
  return INDEX_BYTES + #job.packed + memory(body) + memory_of_records(job.id)
end

local last = request.skip + request.limit - 1
local ids = redis.call('ZREVRANGE', final_key(request.queue, request.state), request.skip, last)
load_jobs(ids)
local total = 0
for i, id in ipairs(ids) do
  local size = loaded_jobs[id] and job_size(loaded_jobs[id]) or INDEX_BYTES
  if total + size > request.room then
    return {i - 1, total, 1}
  end
  total = total + size
end
return {#ids, total, 0}
