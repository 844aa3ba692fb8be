#!lua
-- insert_fast: insert jobs of one shape without keys, times and parents. Refused by the server when its memory is full.
-- KEYS: 1 the namespace
-- ARGV: 1 queue 2 and 3 header part before the priority and after it 4 priority, '' for the queue's default 5... id and
--   body of each job
-- Returns 1. Writes nothing and returns 0 where `insert` must decide: unknown, closed or full queue, priority out of
--   range. Returns -1 where that lasts: the queue has an enqueue rate, or its age bonus is always used up. Returns -2
--   if another job has one of the ids; the caller creates other ids.
-- Cost: most inserts have one such job, and most of their time goes into preparing the script. So this script uses few
--   functions, and headers arrive half packed.
local name, size = ARGV[1], (#ARGV - 4) / 2
local stored_queue = redis.call('HGET', prefix .. 'queues', name)
local queue = stored_queue and cmsgpack.unpack(stored_queue)
local priority = queue and (tonumber(ARGV[4]) or queue[Q_DEFAULT_PRIORITY])
if not queue
  or (queue[Q_STATE] ~= 'active' and queue[Q_STATE] ~= 'paused')
  or priority < queue[Q_MIN_PRIORITY] or priority > queue[Q_MAX_PRIORITY] then
  return 0
end
if queue[Q_ENQUEUE_RATE] or queue[Q_CLIENT_RATE] or (queue[Q_CAP] and queue[Q_CAP] * queue[Q_AGING_MS] < 1000) then
  return -1
end
local pending = name .. ' pending'
if queue[Q_MAX_LENGTH]
  and (redis.call('HGET', prefix .. 'counts', pending) or 0) + size > queue[Q_MAX_LENGTH] then
  return 0
end

local headers_key = prefix .. 'headers'
if size > 1 then
  local ids = {}
  for at = 1, size do
    ids[at] = ARGV[2 * at + 3]
  end
  for at = 1, size, SLICE do
    local stored_queue = redis.call('HMGET', headers_key, unpack(ids, at, math.min(at + SLICE - 1, size)))
    for i = 1, #stored_queue do
      if stored_queue[i] then
        return -2
      end
    end
  end
end

local rank = now - priority * queue[Q_AGING_MS]
local common_part, own_part = ARGV[2] .. cmsgpack.pack(priority) .. ARGV[3], cmsgpack.pack(now, false, false, rank)
local before = struct.pack('>HB', #common_part, #own_part + 14) .. common_part .. '\173'
local after = own_part .. new_job_state
local last = redis.call('INCRBY', prefix .. 'seq', size)
local first = last - size + 1
local format, body, header_pairs, body_pairs, ready = string.format, prefix .. 'body:', {}, {}, {}
for seq = first, last do
  local at = 2 * (seq - first) + 1
  local id, number = ARGV[at + 4], format('%013.0f', seq)
  header_pairs[at], header_pairs[at + 1] = id, before .. number .. after
  body_pairs[at], body_pairs[at + 1] = body .. format('%.0f', seq), ARGV[at + 5]
  ready[at], ready[at + 1] = rank, number .. ':' .. id
end
-- One command stores the job and detects a taken id. The seq that was drawn in vain leaves a harmless gap.
if size > 1 then
  call_in_slices('HSET', headers_key, header_pairs)
elseif redis.call('HSETNX', headers_key, header_pairs[1], header_pairs[2]) == 0 then
  return -2
end
for at = 1, #body_pairs, SLICE do
  redis.call('MSET', unpack(body_pairs, at, math.min(at + SLICE - 1, #body_pairs)))
end
call_in_slices('ZADD', prefix .. 'ready:' .. name, ready)
redis.call('HINCRBY', prefix .. 'counts', pending, size)
for block = math.floor(first / BLOCK), math.floor(last / BLOCK) do
  local inside = math.min(last, block * BLOCK + BLOCK - 1) - math.max(first, block * BLOCK) + 1
  if redis.call('HINCRBY', prefix .. 'block_jobs', block, inside) == inside then
    redis.call('ZADD', prefix .. 'blocks', block, block)
  end
end
redis.call('PUBLISH', prefix .. 'wakeups', '1')
return 1
