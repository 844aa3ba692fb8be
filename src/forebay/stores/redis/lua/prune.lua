#!lua flags=allow-oom
-- Forget final jobs past their queue's retention, and what else has become old; or make room for new jobs.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: limit, most_kept (of each queue and final state; 0 for any number), audit_kept_ms,
--       commands_kept_ms, workers_kept_ms; makes_room: the oldest completed and cancelled jobs go as well,
--       whatever their age. Dead letters stay: somebody has to look at them.
-- Returns how many jobs went. Everything is bounded: what is left goes with the next call.
local REST = 1000
local EXCERPT = 800  -- bytes: two hundred characters at most
local gone_now = 0

local function archive(name, job)
  local number = redis.call('INCR', prefix .. 'archive_number')
  local line = {unpack(job.head)}
  line[RESULT] = line[RESULT] and string.sub(line[RESULT], 1, EXCERPT)
  redis.call('HSET', prefix .. 'archive', number, struct.pack('>H', #job.id) .. job.id .. cmsgpack.pack(line))
  local one = string.format('%013.0f', number)
  redis.call('ZADD', prefix .. 'archived:' .. name, job.head[FINISHED_AT], one)
end

-- Those past their time, or the oldest of more than there may be.
local function too_many(key, keep_ms, left)
  local old = {}
  if keep_ms > 0 then
    old = redis.call('ZRANGEBYSCORE', key, '-inf', now - keep_ms, 'LIMIT', 0, left)
  end
  local over = ask.most_kept > 0 and redis.call('ZCARD', key) - ask.most_kept or 0
  if over > #old then
    old = redis.call('ZRANGE', key, 0, math.min(over, left) - 1)
  end
  return old
end

-- Which part of them goes to make room: the same of all queues, so that a small one does not lose all that it
-- has for a large one.
local function share_that_goes()
  local all = 0
  for _, name in ipairs(queue_names()) do
    all = all + redis.call('ZCARD', final_key(name, 'completed'))
    all = all + redis.call('ZCARD', final_key(name, 'cancelled'))
  end
  return all > 0 and math.min(1, ask.limit / all) or 0
end

local function prune(name, queue, key, keep_ms, share)
  local left = ask.limit - gone_now
  if left <= 0 then
    return
  end
  local ids = too_many(key, keep_ms, left)
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

local function prune_archive(name, keep_ms)
  local key = prefix .. 'archived:' .. name
  local old = keep_ms > 0 and redis.call('ZRANGEBYSCORE', key, '-inf', now - keep_ms, 'LIMIT', 0, REST) or {}
  if #old > 0 then
    redis.call('ZREM', key, unpack(old))
    for i, number in ipairs(old) do
      old[i] = string.format('%.0f', number)
    end
    redis.call('HDEL', prefix .. 'archive', unpack(old))
  end
end

local function prune_once(name)
  local key = prefix .. 'once_until:' .. name
  local old = redis.call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, REST)
  if #old > 0 then
    redis.call('ZREM', key, unpack(old))
    redis.call('HDEL', prefix .. 'once:' .. name, unpack(old))
  end
end

local function prune_events()
  local until_at = now - ask.audit_kept_ms
  local old = redis.call('ZRANGEBYSCORE', prefix .. 'event_times', '-inf', until_at, 'LIMIT', 0, REST)
  for _, number in ipairs(old) do
    local packed = redis.call('HGET', prefix .. 'events', number)
    local id = packed and cmsgpack.unpack(packed)[3]
    if id then
      redis.call('LREM', prefix .. 'events_of:' .. id, 0, number)
    end
  end
  forget_events(old)
end

local function prune_commands()
  local until_at = now - ask.commands_kept_ms
  local old = redis.call('ZRANGEBYSCORE', prefix .. 'command_times', '-inf', until_at, 'LIMIT', 0, REST)
  for _, id in ipairs(old) do
    local packed = redis.call('HGET', prefix .. 'commands', id)
    if packed then
      redis.call('LREM', prefix .. 'commands_of:' .. cmsgpack.unpack(packed)[2], 0, id)
    end
  end
  if #old > 0 then
    redis.call('HDEL', prefix .. 'commands', unpack(old))
    redis.call('ZREM', prefix .. 'command_times', unpack(old))
  end
end

local function prune_workers()
  local all = redis.call('HGETALL', prefix .. 'workers')
  for i = 1, #all, 2 do
    if cmsgpack.unpack(all[i + 1])[7] <= now - ask.workers_kept_ms then
      redis.call('HDEL', prefix .. 'workers', all[i])
    end
  end
end

local share = ask.makes_room and share_that_goes() or 0
for _, name in ipairs(queue_names()) do
  local queue = queue_of(name)
  prune(name, queue, final_key(name, 'completed'), queue[Q_KEEP_FINISHED_MS], share)
  prune(name, queue, final_key(name, 'cancelled'), queue[Q_KEEP_FINISHED_MS], share)
  prune(name, queue, final_key(name, 'dead'), queue[Q_KEEP_DEAD_MS], 0)
end
flush()
for _, name in ipairs(queue_names()) do
  prune_archive(name, queue_of(name)[Q_KEEP_ARCHIVE_MS])
  prune_once(name)
end
prune_events()
prune_commands()
prune_workers()
return finish(gone_now)
