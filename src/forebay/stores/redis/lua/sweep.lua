#!lua flags=allow-oom
-- Take over running jobs whose lease has ended, or whose worker the caller knows to be dead.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: sweeper, limit, most_buried, lease_ms, only_dead, dead (workers), ended_by (a time, or false)
-- Returns how many jobs that wait in dropped queues went to the dead letters on the way, and rows of those taken over.
local buried = 0
for _, name in ipairs(queue_names()) do
  if buried < ask.most_buried and queue_of(name)[Q_STATE] == 'dropped' then
    buried = buried + bury(name, ask.most_buried - buried)
  end
end
flush()

local function ends_before(one, other)
  if one[1] ~= other[1] then
    return one[1] < other[1]
  end
  return one[2] < other[2]
end

-- The leases of these workers that end first, not later than `last`: end, entry, set. However many workers there
-- are, few more than `limit` are looked at: those of the next ones have to end before the last that we have.
local function first_leases(workers, last)
  local entries = {}
  for _, worker in ipairs(workers) do
    local key = prefix .. 'leases:' .. worker
    local some = redis.call('ZRANGEBYSCORE', key, '-inf', last, 'WITHSCORES', 'LIMIT', 0, ask.limit)
    for i = 1, #some, 2 do
      entries[#entries + 1] = {tonumber(some[i + 1]), some[i], key}
    end
    if #entries > 4 * ask.limit then
      table.sort(entries, ends_before)
      entries = {unpack(entries, 1, ask.limit)}
      last = entries[ask.limit][1]
    end
  end
  table.sort(entries, ends_before)
  return entries
end

local swept, is_swept = {}, {}

local function take_over(job)
  local old = job.head[WORKER]
  lift(job)
  job.head[WORKER], job.head[UPDATED_AT] = ask.sweeper, now
  job.head[SWEPT_FROM] = job.head[SWEPT_FROM] or old
  job.lease_ends_at = now + ask.lease_ms
  put(job)
  tell('swept', job, ask.sweeper, job.head[ATTEMPT], old)
  swept[#swept + 1] = job
  is_swept[job.id] = true
end

local function take_over_all(entries)
  local names = {}
  for i = 1, math.min(#entries, ask.limit) do
    names[i] = id_in(entries[i][2])
  end
  bring(names)
  for _, entry in ipairs(entries) do
    local id = id_in(entry[2])
    local job = #swept < ask.limit and find(id)
    if job and not is_swept[id] then
      take_over(job)
    elseif loaded[id] == false then
      remove_later(entry[3], entry[2])
    end
  end
end

local holding = {}
for _, worker in ipairs(redis.call('SMEMBERS', prefix .. 'holders')) do
  if redis.call('EXISTS', prefix .. 'leases:' .. worker) == 0 then
    redis.call('SREM', prefix .. 'holders', worker)
  else
    holding[#holding + 1] = worker
  end
end
if not ask.only_dead then
  take_over_all(first_leases(holding, ask.ended_by and math.min(now, ask.ended_by) or now))
end
local dead = {}
for _, worker in ipairs(ask.dead) do
  if worker ~= ask.sweeper then
    dead[#dead + 1] = worker
  end
end
take_over_all(first_leases(dead, '+inf'))
flush()
return finish({buried, rows_of(swept)})
