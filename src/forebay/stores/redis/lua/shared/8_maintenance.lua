-- Maintenance of whole batches of jobs, driven by the clock.

local function due_entries(key, limit)
  local members = redis.call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, limit)
  local ids = ids_in(members)
  load_jobs(ids)
  return ids, members
end

-- An entry whose job is missing (deleted by hand, or evicted) must not block the entries behind it.
local function due_jobs(key, limit)
  local ids, members = due_entries(key, limit)
  local jobs = {}
  for i, id in ipairs(ids) do
    if loaded_jobs[id] then
      jobs[#jobs + 1] = loaded_jobs[id]
    else
      defer_remove(key, members[i])
    end
  end
  return jobs
end

-- Cancel up to `limit` waiting jobs that have expired.
local function expire_jobs(limit)
  local jobs = due_jobs(prefix .. 'expiry_times', limit)
  for _, job in ipairs(jobs) do
    finish_job(job, 'cancelled', 'expired', false)
    add_event('expired', job, false, false, '')
  end
  if #jobs > 0 then
    flush()
  end
  return #jobs
end

local function promote_jobs(jobs)
  for _, job in ipairs(jobs) do
    unindex_job(job)
    -- `promoted_at` in domain/settlement.py has the reason.
    job.header[UPDATED_AT], job.header[LANE] = math.max(now, job.header[RUN_AT] + 1), lane_when_due(job)
    index_pending(job)
  end
  if #jobs > 0 then
    flush()
  end
  return #jobs
end

-- Whether the caller gets a maintenance task.
local function acquire_maintenance(name, every_ms)
  local next_at = tonumber(redis.call('HGET', prefix .. 'maintenance', name) or 0)
  -- A time further ahead than the task's interval was written before the clock was set back.
  if now < next_at and next_at <= now + every_ms then
    return false
  end
  redis.call('HSET', prefix .. 'maintenance', name, now + every_ms)
  return true
end

-- Make up to `limit` due jobs of one queue pending, or fewer if the queue is staggered.
local function promote_queue(queue, limit)
  local config, key = load_queue(queue), prefix .. 'delayed:' .. queue
  if not config or not config[Q_STAGGER_JOBS] then
    return promote_jobs(due_jobs(key, limit))
  end
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  if not first or tonumber(first) > now or not acquire_maintenance('promote ' .. queue, config[Q_STAGGER_MS]) then
    return 0
  end
  return promote_jobs(due_jobs(key, math.min(limit, config[Q_STAGGER_JOBS])))
end

-- Delayed and blocked jobs of a queue, by time.
local function first_waiting(queue, limit)
  local entries = {}
  for _, name in ipairs({'delayed:', 'blocked:'}) do
    local key = prefix .. name .. queue
    local rows = redis.call('ZRANGE', key, 0, limit - 1, 'WITHSCORES')
    for i = 1, #rows, 2 do
      entries[#entries + 1] = {tonumber(rows[i + 1]), rows[i], key}
    end
  end
  table.sort(entries, function(left, right)
    if left[1] ~= right[1] then
      return left[1] < right[1]
    end
    return left[2] < right[2]
  end)
  for i = #entries, limit + 1, -1 do
    entries[i] = nil
  end
  return entries
end

local function mark_entry_dead(key, entry)
  local job = load_job(id_in(entry))
  if job then
    finish_job(job, 'dead', 'queue dropped', false)
    add_event('dropped', job, false, false, '')
  else
    defer_remove(key, entry)
  end
end

-- Make up to `limit` waiting jobs of a dropped queue dead letters: first delayed and blocked jobs, then pending ones in
-- order.
local function mark_waiting_dead(queue, limit)
  local lanes = all_lanes(queue)
  local keys = {ready_key(queue, false, false), ready_key(queue, false, true)}
  for _, lane in ipairs(lanes) do
    keys[#keys + 1] = ready_key(queue, lane, false)
    keys[#keys + 1] = ready_key(queue, lane, true)
  end
  local marked = 0
  for _, entry in ipairs(first_waiting(queue, limit)) do
    mark_entry_dead(entry[3], entry[2])
    marked = marked + 1
  end
  for _, key in ipairs(keys) do
    if marked >= limit then
      break
    end
    for _, waiting_entry in ipairs(redis.call('ZRANGE', key, 0, limit - marked - 1)) do
      mark_entry_dead(key, waiting_entry)
      marked = marked + 1
    end
  end
  return marked
end
