#!lua
-- Accept new jobs that are plain and alike: no keys, no times, no parents. Refused by the server when its memory is full.
-- KEYS: 1 the namespace
-- ARGV: 1 queue  2 and 3 the first part of their heads, before the priority and after it  4 priority, or '' for the
--       queue's own  5... id and body of each job
-- Returns 1. Where `insert` has to look closer, nothing is written, and it is 0 (no such queue, one that is closed or
-- full, a priority outside of its range) or -1 (the queue takes jobs at a rate, or their age earns nothing): that stays.
-- It is -2 where another job has one of the ids: then nothing is written either, and the caller makes other ids.
-- Most inserts are of one such job, and most of what they cost is what a script does before it begins: so this one
-- has hardly any functions, and the heads come half packed.
local name, size = ARGV[1], (#ARGV - 4) / 2
local found = redis.call('HGET', prefix .. 'queues', name)
local queue = found and cmsgpack.unpack(found)
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

local head_key = prefix .. 'heads'
if size > 1 then
  local ids = {}
  for at = 1, size do
    ids[at] = ARGV[2 * at + 3]
  end
  for at = 1, size, SLICE do
    local found = redis.call('HMGET', head_key, unpack(ids, at, math.min(at + SLICE - 1, size)))
    for i = 1, #found do
      if found[i] then
        return -2
      end
    end
  end
end

local rank = now - priority * queue[Q_AGING_MS]
local alike, own = ARGV[2] .. cmsgpack.pack(priority) .. ARGV[3], cmsgpack.pack(now, false, false, rank)
local before = struct.pack('>HB', #alike, #own + 14) .. alike .. '\173'
local after = own .. fresh_standing
local last = redis.call('INCRBY', prefix .. 'seq', size)
local first = last - size + 1
local format, body, packs, texts, ready = string.format, prefix .. 'body:', {}, {}, {}
for seq = first, last do
  local at = 2 * (seq - first) + 1
  local id, number = ARGV[at + 4], format('%013.0f', seq)
  packs[at], packs[at + 1] = id, before .. number .. after
  texts[at], texts[at + 1] = body .. format('%.0f', seq), ARGV[at + 5]
  ready[at], ready[at + 1] = rank, number .. ':' .. id
end
-- One job takes its id and sees whether it was free by one command. The number that was drawn in vain is not missed.
if size > 1 then
  send('HSET', head_key, packs)
elseif redis.call('HSETNX', head_key, packs[1], packs[2]) == 0 then
  return -2
end
for at = 1, #texts, SLICE do
  redis.call('MSET', unpack(texts, at, math.min(at + SLICE - 1, #texts)))
end
send('ZADD', prefix .. 'ready:' .. name, ready)
redis.call('HINCRBY', prefix .. 'counts', pending, size)
for block = math.floor(first / BLOCK), math.floor(last / BLOCK) do
  local inside = math.min(last, block * BLOCK + BLOCK - 1) - math.max(first, block * BLOCK) + 1
  if redis.call('HINCRBY', prefix .. 'block_jobs', block, inside) == inside then
    redis.call('ZADD', prefix .. 'blocks', block, block)
  end
end
redis.call('PUBLISH', prefix .. 'news', '1')
return 1
