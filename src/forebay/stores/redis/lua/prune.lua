#!lua flags=allow-oom
-- Forget final jobs of some queues past their retention, or make room for new jobs.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: queues; limit: how many jobs may go; most_kept: how many of each queue and final state
--       stay at most, 0 for any number; fitting: the same for single ones, by "state:queue"; share: which part
--       of the completed and cancelled jobs of each queue goes to make room, whatever their age. Dead letters
--       stay then: somebody has to look at them.
-- Returns how many jobs went. What is left goes with the next call.
local EXCERPT = 800  -- bytes: two hundred characters at most
local gone_now = 0

local function archive(name, job)
  local number = redis.call('INCR', prefix .. 'archive_number')
  local line = {unpack(job.head)}
  line[RESULT] = line[RESULT] and string.sub(line[RESULT], 1, EXCERPT)
  redis.call('HSET', prefix .. 'archive', number, struct.pack('>H', #job.id) .. job.id .. packed_of(line))
  local one = string.format('%013.0f', number)
  redis.call('ZADD', prefix .. 'archived:' .. name, job.head[FINISHED_AT], one)
end

-- Those past their time, or the oldest of more than there may be.
local function too_many(key, most, keep_ms, left)
  local old = {}
  if keep_ms > 0 then
    old = redis.call('ZRANGEBYSCORE', key, '-inf', now - keep_ms, 'LIMIT', 0, left)
  end
  local over = most and redis.call('ZCARD', key) - most or 0
  if over > #old then
    old = redis.call('ZRANGE', key, 0, math.min(over, left) - 1)
  end
  return old
end

local function most_of(name, state)
  local most = ask.most_kept > 0 and ask.most_kept
  local fitting = ask.fitting[state .. ':' .. name]
  if fitting and (not most or fitting < most) then
    return fitting
  end
  return most
end

local function prune(name, queue, state, keep_ms, share)
  local left = ask.limit - gone_now
  if left <= 0 then
    return
  end
  local key = final_key(name, state)
  local ids = too_many(key, most_of(name, state), keep_ms, left)
  local most = math.min(left, math.ceil(share * redis.call('ZCARD', key)))
  if most > #ids then
    ids = redis.call('ZRANGE', key, 0, most - 1)
  end
  load(ids)
  for _, id in ipairs(ids) do
    local job = loaded[id]
    if job then
      if queue[Q_ARCHIVE] then
        archive(name, job)
      end
      remove(job)
      gone_now = gone_now + 1
    else
      remove_later(key, id)
    end
  end
end

for _, name in ipairs(ask.queues) do
  local queue = queue_of(name)
  if queue then
    prune(name, queue, 'completed', queue[Q_KEEP_FINISHED_MS], ask.share)
    prune(name, queue, 'cancelled', queue[Q_KEEP_FINISHED_MS], ask.share)
    prune(name, queue, 'dead', queue[Q_KEEP_DEAD_MS], 0)
  end
end
return finish(gone_now)
