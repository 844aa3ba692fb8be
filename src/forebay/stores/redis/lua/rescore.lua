#!lua flags=allow-oom
-- Rewrite the place of pending jobs whose time for it has come, or whose queue has a new scoring.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: limit
-- Returns how many jobs were looked at; 0 means that nothing is left.
local looked_at = 0

for _, job in ipairs(found_in(prefix .. 'rescoring', ask.limit)) do
  lift(job)
  put_pending(job)
  looked_at = looked_at + 1
end
flush()

-- The jobs of a block from seq `first` on: every body begins with the id of its job.
local function jobs_from(first, last)
  local ids, jobs = {}, {}
  for seq = first, last do
    ids[#ids + 1] = id_of_body(seq)
  end
  load(ids)
  for _, id in ipairs(ids) do
    jobs[#jobs + 1] = loaded[id] or nil
  end
  return jobs
end

-- Up to `limit` jobs of the queue in one block; answers how many, and how far it has come.
local function reorder_block(name, first, last, limit)
  local found, reached = 0, last
  for _, job in ipairs(jobs_from(first, last)) do
    if job.head[QUEUE] == name and job.head[STATE] == 'pending' then
      lift(job)
      put_pending(job)
      found = found + 1
      if found == limit then
        reached = job.head[SEQ]
        break
      end
    end
  end
  flush()
  return found, reached
end

-- The next block of a queue that has a new scoring. Jobs that do not wait in an order get their place when they become
-- pending.
local function reorder(name, queue, limit)
  local after, found = queue[Q_REORDERED_TO], 0
  local block = redis.call('ZRANGEBYSCORE', prefix .. 'blocks', block_of(after + 1), '+inf', 'LIMIT', 0, 1)[1]
  if block then
    local first, last = math.max(after + 1, block * BLOCK), (block + 1) * BLOCK - 1
    found, queue[Q_REORDERED_TO] = reorder_block(name, first, last, limit)
  else
    queue[Q_REORDERED_TO] = false
  end
  write_queue(name, queue)
  -- Something is left to do even where nothing of this queue was met.
  return queue[Q_REORDERED_TO] and math.max(found, 1) or found
end

-- Move up to `limit` pending jobs whose age earns nothing more since they were looked at. Jobs that were ready
-- when they were created stand in no set of times for that; their numbers are in the order of their creation, and
-- `capped_to` says how far we have come. Answers how many, how far it came now, and whether there may be more.
local function cap_in(name, queue, limit)
  local after = tonumber(redis.call('HGET', prefix .. 'capped_to', name) or 0)
  local block = redis.call('ZRANGEBYSCORE', prefix .. 'blocks', block_of(after + 1), '+inf', 'LIMIT', 0, 1)[1]
  if not block then
    return 0, 0, false
  end
  -- Not beyond the last number that was given to a job.
  local last = math.min((block + 1) * BLOCK - 1, tonumber(redis.call('GET', prefix .. 'seq')))
  local found, reached, is_over = 0, after, false
  for seq = math.max(after + 1, block * BLOCK), last do
    local id = id_of_body(seq)
    local job = id and find(id)
    is_over = job and job.head[CREATED_AT] + cap_ms(queue) > now or found == limit
    if is_over then
      break
    end
    reached = seq
    if job and job.head[QUEUE] == name and job.head[STATE] == 'pending' and not job.head[CAPPED] then
      lift(job)
      put_pending(job)
      found = found + 1
    end
  end
  flush()
  if reached > after then
    redis.call('HSET', prefix .. 'capped_to', name, string.format('%.0f', reached))
  end
  return found, reached - after, not is_over and reached > after
end

local walked = 0
for _, name in ipairs(queue_names()) do
  local queue = queue_of(name)
  if queue[Q_REORDERED_TO] and looked_at < ask.limit then
    looked_at = looked_at + reorder(name, queue, ask.limit - looked_at)
  end
  if queue[Q_CAP] and looked_at < ask.limit and walked < BLOCK then
    local found, steps, has_more = cap_in(name, queue, ask.limit - looked_at)
    walked = walked + steps
    looked_at = looked_at + (has_more and math.max(found, 1) or found)
  end
end
return finish(looked_at)
