#!lua flags=allow-oom
-- sweep: take over running jobs whose lease has ended, or whose worker the caller knows to be dead.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: sweeper, limit, max_marked_dead, lease_ms, only_dead, dead (workers), ended_by (a time, or
--   false)
-- Returns the number of waiting jobs of dropped queues that became dead letters, and rows of the jobs taken over.
local marked_dead = 0
for _, name in ipairs(queue_names()) do
  if marked_dead < request.max_marked_dead and load_queue(name)[Q_STATE] == 'dropped' then
    marked_dead = marked_dead + mark_waiting_dead(name, request.max_marked_dead - marked_dead)
  end
end
flush()

local function ends_before(left, right)
  if left[1] ~= right[1] then
    return left[1] < right[1]
  end
  return left[2] < right[2]
end

-- Leases of these workers that end first, not later than `last`: end, member, key. However many workers there are, few
-- more than `limit` leases are read: those of later workers must end before the last one found.
local function first_leases(workers, last)
  local entries = {}
  for _, worker in ipairs(workers) do
    local key = prefix .. 'leases:' .. worker
    local leases = redis.call('ZRANGEBYSCORE', key, '-inf', last, 'WITHSCORES', 'LIMIT', 0, request.limit)
    for i = 1, #leases, 2 do
      entries[#entries + 1] = {tonumber(leases[i + 1]), leases[i], key}
    end
    if #entries > 4 * request.limit then
      table.sort(entries, ends_before)
      entries = {unpack(entries, 1, request.limit)}
      last = entries[request.limit][1]
    end
  end
  table.sort(entries, ends_before)
  return entries
end

local swept, was_swept = {}, {}

local function take_over(job)
  local old = job.header[WORKER]
  unindex_job(job)
  job.header[WORKER], job.header[UPDATED_AT] = request.sweeper, now
  job.header[SWEPT_FROM] = job.header[SWEPT_FROM] or old
  job.lease_expires_at = now + request.lease_ms
  index_job(job)
  add_event('swept', job, request.sweeper, job.header[ATTEMPT], old)
  swept[#swept + 1] = job
  was_swept[job.id] = true
end

local function take_over_all(entries)
  local names = {}
  for i = 1, math.min(#entries, request.limit) do
    names[i] = id_in(entries[i][2])
  end
  prefetch_headers(names)
  for _, entry in ipairs(entries) do
    local id = id_in(entry[2])
    local job = #swept < request.limit and load_job(id)
    if job and not was_swept[id] then
      take_over(job)
    elseif loaded_jobs[id] == false then
      defer_remove(entry[3], entry[2])
    end
  end
end

local lease_workers = {}
for _, worker in ipairs(redis.call('SMEMBERS', prefix .. 'lease_holders')) do
  if redis.call('EXISTS', prefix .. 'leases:' .. worker) == 0 then
    redis.call('SREM', prefix .. 'lease_holders', worker)
  else
    lease_workers[#lease_workers + 1] = worker
  end
end
if not request.only_dead then
  take_over_all(first_leases(lease_workers, request.ended_by and math.min(now, request.ended_by) or now))
end
local dead = {}
for _, worker in ipairs(request.dead) do
  if worker ~= request.sweeper then
    dead[#dead + 1] = worker
  end
end
take_over_all(first_leases(dead, '+inf'))
flush()
return finish({marked_dead, job_rows(swept)})
