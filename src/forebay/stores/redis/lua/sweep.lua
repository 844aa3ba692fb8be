#!lua flags=allow-oom
-- Take over running jobs whose lease has ended, or whose worker the caller knows to be dead.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: sweeper, limit, lease_ms, only_dead, dead (workers)
-- Returns rows of the jobs. What waits in dropped queues goes to the dead letters on the way.
local left = ask.limit
for _, name in ipairs(queue_names()) do
  if left > 0 and queue_of(name)[Q_STATE] == 'dropped' then
    left = left - bury(name, left)
  end
end
flush()

local found, seen = {}, {}

local function gather(worker, leases)
  local ids = {}
  for i = 1, #leases, 2 do
    ids[#ids + 1] = id_in(leases[i])
  end
  load(ids)
  local batch = {}
  for i = 1, #leases, 2 do
    local job = loaded[id_in(leases[i])]
    if job then
      batch[#batch + 1] = {tonumber(leases[i + 1]), leases[i], job}
    else
      remove_later(prefix .. 'leases:' .. worker, leases[i])
    end
  end
  return batch
end

local function add(batch)
  table.sort(batch, function(one, other)
    if one[1] ~= other[1] then
      return one[1] < other[1]
    end
    return one[2] < other[2]
  end)
  for _, entry in ipairs(batch) do
    if not seen[entry[3].id] then
      seen[entry[3].id] = true
      found[#found + 1] = entry[3]
    end
  end
end

local function extend(batch, more)
  for _, entry in ipairs(more) do
    batch[#batch + 1] = entry
  end
end

local ended = {}
for _, worker in ipairs(redis.call('SMEMBERS', prefix .. 'holders')) do
  local key = prefix .. 'leases:' .. worker
  if redis.call('EXISTS', key) == 0 then
    redis.call('SREM', prefix .. 'holders', worker)
  elseif not ask.only_dead then
    local leases = redis.call('ZRANGEBYSCORE', key, '-inf', now, 'WITHSCORES', 'LIMIT', 0, ask.limit)
    extend(ended, gather(worker, leases))
  end
end
add(ended)
local orphaned = {}
for _, worker in ipairs(ask.dead) do
  if worker ~= ask.sweeper then
    local leases = redis.call('ZRANGE', prefix .. 'leases:' .. worker, 0, ask.limit - 1, 'WITHSCORES')
    extend(orphaned, gather(worker, leases))
  end
end
add(orphaned)

local swept = {}
for i = 1, math.min(#found, ask.limit) do
  local job = found[i]
  local old = job.head[WORKER]
  lift(job)
  job.head[WORKER], job.head[UPDATED_AT] = ask.sweeper, now
  job.head[SWEPT_FROM] = job.head[SWEPT_FROM] or old
  job.lease_ends_at = now + ask.lease_ms
  put(job)
  tell('swept', job, ask.sweeper, job.head[ATTEMPT], old)
  swept[i] = job
end
flush()
return finish(rows_of(swept))
