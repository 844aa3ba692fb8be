#!lua flags=allow-oom
-- prune: remove final jobs of some queues past their retention, or make room for new jobs.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: queues; limit (jobs to remove); max_finished (jobs of each queue and final state, 0 for any number);
--   fitting (the same for single ones, by "state:queue"); fraction (part of the completed and cancelled jobs of each
--   queue to remove whatever their age)
-- Returns the number of jobs removed. The next call removes the rest.
-- Dead letters are not removed to make room: an operator has to look at them.
local EXCERPT_BYTES = 800  -- two hundred characters at most
local pruned = 0

local function archive_job(name, job)
  local number = redis.call('INCR', prefix .. 'archive_id')
  local archived_header = {unpack(job.header)}
  archived_header[RESULT] = archived_header[RESULT] and string.sub(archived_header[RESULT], 1, EXCERPT_BYTES)
  redis.call('HSET', prefix .. 'archive', number, struct.pack('>H', #job.id) .. job.id .. pack_header(archived_header))
  local entry = string.format('%013.0f', number)
  redis.call('ZADD', prefix .. 'archived:' .. name, job.header[FINISHED_AT], entry)
end

-- Ids of jobs past their retention, or of the oldest jobs above the allowed number.
local function ids_to_prune(key, max_finished, keep_ms, left)
  local old = {}
  if keep_ms > 0 then
    old = redis.call('ZRANGEBYSCORE', key, '-inf', now - keep_ms, 'LIMIT', 0, left)
  end
  local excess = max_finished and redis.call('ZCARD', key) - max_finished or 0
  if excess > #old then
    old = redis.call('ZRANGE', key, 0, math.min(excess, left) - 1)
  end
  return old
end

local function max_finished_of(name, state)
  local max_finished = request.max_finished > 0 and request.max_finished
  local fitting = request.fitting[state .. ':' .. name]
  if fitting and (not max_finished or fitting < max_finished) then
    return fitting
  end
  return max_finished
end

local function prune_state(name, queue, state, keep_ms, fraction)
  local room_left = request.limit - pruned
  if room_left <= 0 then
    return
  end
  local key = final_key(name, state)
  local ids = ids_to_prune(key, max_finished_of(name, state), keep_ms, room_left)
  local fraction_jobs = math.min(room_left, math.ceil(fraction * redis.call('ZCARD', key)))
  if fraction_jobs > #ids then
    ids = redis.call('ZRANGE', key, 0, fraction_jobs - 1)
  end
  load_jobs(ids)
  for _, id in ipairs(ids) do
    local job = loaded_jobs[id]
    if job then
      if queue[Q_ARCHIVE] then
        archive_job(name, job)
      end
      remove_job(job)
      pruned = pruned + 1
    else
      defer_remove(key, id)
    end
  end
end

for _, name in ipairs(request.queues) do
  local queue = load_queue(name)
  if queue then
    prune_state(name, queue, 'completed', queue[Q_KEEP_FINISHED_MS], request.fraction)
    prune_state(name, queue, 'cancelled', queue[Q_KEEP_FINISHED_MS], request.fraction)
    prune_state(name, queue, 'dead', queue[Q_KEEP_DEAD_MS], 0)
  end
end
return finish(pruned)
