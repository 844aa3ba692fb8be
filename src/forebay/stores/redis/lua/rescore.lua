#!lua flags=allow-oom
-- rescore: compute the rank of pending jobs anew whose rescore time has come, or whose queue has a new scoring.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: limit
-- Returns the number of jobs checked; 0 means that nothing is left.
local examined = 0

for _, job in ipairs(due_jobs(prefix .. 'rescore_times', request.limit)) do
  unindex_job(job)
  index_pending(job)
  examined = examined + 1
end
flush()

-- Jobs of a block from seq `first` on. Every body begins with the id of its job.
local function load_block_jobs(first, last)
  local ids, jobs = {}, {}
  for seq = first, last do
    ids[#ids + 1] = read_job_id(seq)
  end
  load_jobs(ids)
  for _, id in ipairs(ids) do
    jobs[#jobs + 1] = loaded_jobs[id] or nil
  end
  return jobs
end

-- Rescore up to `limit` jobs of the queue in one block; returns their number, and the seq reached.
local function rescore_block(name, first, last, limit)
  local rescored, reached = 0, last
  for _, job in ipairs(load_block_jobs(first, last)) do
    if job.header[QUEUE] == name and job.header[STATE] == 'pending' then
      unindex_job(job)
      index_pending(job)
      rescored = rescored + 1
      if rescored == limit then
        reached = job.header[SEQ]
        break
      end
    end
  end
  flush()
  return rescored, reached
end

-- Process the next block of a queue with a new scoring. Jobs outside the main order get their rank when they become
-- pending.
local function rescore_queue(name, queue, limit)
  local after, rescored = queue[Q_RESCORED_TO_SEQ], 0
  local block = redis.call('ZRANGEBYSCORE', prefix .. 'blocks', block_of(after + 1), '+inf', 'LIMIT', 0, 1)[1]
  if block then
    local first, last = math.max(after + 1, block * BLOCK), (block + 1) * BLOCK - 1
    rescored, queue[Q_RESCORED_TO_SEQ] = rescore_block(name, first, last, limit)
  else
    queue[Q_RESCORED_TO_SEQ] = false
  end
  write_queue(name, queue)
  -- There is more to do even if this block has no job of the queue.
  return queue[Q_RESCORED_TO_SEQ] and math.max(rescored, 1) or rescored
end

-- Move up to `limit` pending jobs whose age bonus was used up since the last check. Jobs that were ready when they were
-- created have no rescore time. Their seqs are in the order of creation, and `capped_scan` has the seq reached. Returns
-- the number of jobs, the number of seqs passed, and whether there may be more.
local function cap_queue(name, queue, limit)
  local after = tonumber(redis.call('HGET', prefix .. 'capped_scan', name) or 0)
  local block = redis.call('ZRANGEBYSCORE', prefix .. 'blocks', block_of(after + 1), '+inf', 'LIMIT', 0, 1)[1]
  if not block then
    return 0, 0, false
  end
  -- Not beyond the last seq of the store.
  local last = math.min((block + 1) * BLOCK - 1, tonumber(redis.call('GET', prefix .. 'seq')))
  local capped, reached, is_over = 0, after, false
  for seq = math.max(after + 1, block * BLOCK), last do
    local id = read_job_id(seq)
    local job = id and load_job(id)
    is_over = job and job.header[CREATED_AT] + cap_ms(queue) > now or capped == limit
    if is_over then
      break
    end
    reached = seq
    if job and job.header[QUEUE] == name and job.header[STATE] == 'pending' and not job.header[AGE_CAPPED] then
      unindex_job(job)
      index_pending(job)
      capped = capped + 1
    end
  end
  flush()
  if reached > after then
    redis.call('HSET', prefix .. 'capped_scan', name, string.format('%.0f', reached))
  end
  return capped, reached - after, not is_over and reached > after
end

local scanned = 0
for _, name in ipairs(queue_names()) do
  local queue = load_queue(name)
  if queue[Q_RESCORED_TO_SEQ] and examined < request.limit then
    examined = examined + rescore_queue(name, queue, request.limit - examined)
  end
  if queue[Q_CAP] and examined < request.limit and scanned < BLOCK then
    local capped, steps, has_more = cap_queue(name, queue, request.limit - examined)
    scanned = scanned + steps
    examined = examined + (has_more and math.max(capped, 1) or capped)
  end
end
return finish(examined)
