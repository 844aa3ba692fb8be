#!lua flags=allow-oom
-- Rewrite the place of pending jobs whose time for it has come, or whose queue has a new scoring.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: limit
-- Returns how many jobs were looked at; 0 means that nothing is left.
local looked_at = 0
local BLOCKS_PER_CALL = 3

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

-- Jobs that do not wait in an order get their place when they become pending.
local function reorder(name, queue, limit)
  local found = 0
  for _ = 1, BLOCKS_PER_CALL do
    local after = queue[Q_REORDERED_TO]
    local block = redis.call('ZRANGEBYSCORE', prefix .. 'blocks', block_of(after + 1), '+inf', 'LIMIT', 0, 1)[1]
    if not block or found == limit then
      queue[Q_REORDERED_TO] = block and after or false
      break
    end
    local first, last = math.max(after + 1, block * BLOCK), (block + 1) * BLOCK - 1
    local more, reached = reorder_block(name, first, last, limit - found)
    found = found + more
    queue[Q_REORDERED_TO] = reached
  end
  write_queue(name, queue)
  -- Something is left to do even where nothing of this queue was met.
  return queue[Q_REORDERED_TO] and math.max(found, 1) or found
end

for _, name in ipairs(queue_names()) do
  local queue = queue_of(name)
  if queue[Q_REORDERED_TO] and looked_at < ask.limit then
    looked_at = looked_at + reorder(name, queue, ask.limit - looked_at)
  end
end
return finish(looked_at)
