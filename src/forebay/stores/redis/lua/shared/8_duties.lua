-- What is done by the clock, for whole batches of jobs.

local function first_of(key, limit)
  local members = redis.call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, limit)
  local ids = ids_in(members)
  load(ids)
  return ids, members
end

-- An entry whose job is not there (deleted by hand, or evicted) must not hold up those behind it.
local function found_in(key, limit)
  local ids, members = first_of(key, limit)
  local jobs = {}
  for i, id in ipairs(ids) do
    if loaded[id] then
      jobs[#jobs + 1] = loaded[id]
    else
      remove_later(key, members[i])
    end
  end
  return jobs
end

-- Cancel up to `limit` waiting jobs that were not started in time.
local function expire(limit)
  local jobs = found_in(prefix .. 'expiring', limit)
  for _, job in ipairs(jobs) do
    put_final(job, 'cancelled', 'expired', false)
    tell('expired', job, false, false, '')
  end
  if #jobs > 0 then
    flush()
  end
  return #jobs
end

local function promote_all(jobs)
  for _, job in ipairs(jobs) do
    lift(job)
    -- `promoted_at` in domain/settlement.py says why.
    job.head[UPDATED_AT], job.head[GATE] = math.max(now, job.head[RUN_AT] + 1), gate_when_due(job)
    put_pending(job)
  end
  if #jobs > 0 then
    flush()
  end
  return #jobs
end

-- Whether a duty is the caller's now.
local function take_duty(name, every_ms)
  local next_at = tonumber(redis.call('HGET', prefix .. 'duties', name) or 0)
  -- A time further ahead than the duty's own pace was written before the clock was set back.
  if now < next_at and next_at <= now + every_ms then
    return false
  end
  redis.call('HSET', prefix .. 'duties', name, now + every_ms)
  return true
end

-- Make up to `limit` due jobs of one queue pending, or fewer where that is staggered.
local function promote_in(queue, limit)
  local known, key = queue_of(queue), prefix .. 'due:' .. queue
  if not known or not known[Q_STAGGER_JOBS] then
    return promote_all(found_in(key, limit))
  end
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  if not first or tonumber(first) > now or not take_duty('promote ' .. queue, known[Q_STAGGER_MS]) then
    return 0
  end
  return promote_all(found_in(key, math.min(limit, known[Q_STAGGER_JOBS])))
end

-- The jobs of a queue that are not due yet or blocked, by their time.
local function first_waiting(queue, limit)
  local entries = {}
  for _, name in ipairs({'due:', 'blocked:'}) do
    local key = prefix .. name .. queue
    local some = redis.call('ZRANGE', key, 0, limit - 1, 'WITHSCORES')
    for i = 1, #some, 2 do
      entries[#entries + 1] = {tonumber(some[i + 1]), some[i], key}
    end
  end
  table.sort(entries, function(one, other)
    if one[1] ~= other[1] then
      return one[1] < other[1]
    end
    return one[2] < other[2]
  end)
  for i = #entries, limit + 1, -1 do
    entries[i] = nil
  end
  return entries
end

local function bury_one(key, entry)
  local job = find(id_in(entry))
  if job then
    put_final(job, 'dead', 'queue dropped', false)
    tell('dropped', job, false, false, '')
  else
    remove_later(key, entry)
  end
end

-- Move up to `limit` jobs that wait in a dropped queue to the dead letters: first those that are not due
-- yet or blocked, then the pending ones in their order.
local function bury(queue, limit)
  local names = all_gates_of(queue)
  local keys = {ready_key(queue, false, false), ready_key(queue, false, true)}
  for _, gate in ipairs(names) do
    keys[#keys + 1] = ready_key(queue, gate, false)
    keys[#keys + 1] = ready_key(queue, gate, true)
  end
  local buried = 0
  for _, entry in ipairs(first_waiting(queue, limit)) do
    bury_one(entry[3], entry[2])
    buried = buried + 1
  end
  for _, key in ipairs(keys) do
    if buried >= limit then
      break
    end
    for _, one in ipairs(redis.call('ZRANGE', key, 0, limit - buried - 1)) do
      bury_one(key, one)
      buried = buried + 1
    end
  end
  return buried
end
