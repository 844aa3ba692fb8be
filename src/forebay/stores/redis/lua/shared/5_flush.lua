-- Write the changes that a script has collected.
local MAX_EVENTS = 100

-- Whether an event is an operator action. A text costs nothing in scripts that record no event.
local function is_action(event)
  local kinds = ' cancel force_cancelled revived replayed updated deleted queue_changed limit_changed schedule_changed'
    .. ' worker_command api_key_changed alert_changed gradual_revive '
  return string.find(kinds, ' ' .. event[1] .. ' ', 1, true)
end

-- `event_ids` lists events that are no actions; the audit log lists the actions.
local function write_event(event)
  local number = redis.call('INCR', prefix .. 'event_id')
  redis.call('HSET', prefix .. 'events', number, cmsgpack.pack(event))
  if not is_action(event) then
    redis.call('ZADD', prefix .. 'event_ids', number, number)
  end
  redis.call('ZADD', prefix .. 'event_times', event[2], number)
  return number
end

local function write_action(event, number)
  redis.call('HSET', prefix .. 'audit', number, cmsgpack.pack(event))
  redis.call('ZADD', prefix .. 'audit_order', number, number)
end

local function count_omitted_event(key, event)
  local numbers = redis.call('LRANGE', key, 0, -1)
  for i, packed in ipairs(redis.call('HMGET', prefix .. 'events', unpack(numbers))) do
    local omitted = packed and cmsgpack.unpack(packed)
    if omitted and omitted[1] == 'events_omitted' then
      omitted[2], omitted[7] = event[2], string.format('%.0f', omitted[7] + 1)
      redis.call('HSET', prefix .. 'events', numbers[i], cmsgpack.pack(omitted))
      redis.call('ZADD', prefix .. 'event_times', omitted[2], numbers[i])
      return
    end
  end
  redis.call('RPUSH', key, write_event({'events_omitted', event[2], event[3], event[4], false, false, '1'}))
end

-- Append an event to its job's history, or count it if the job has MAX_EVENTS already.
local function append_job_event(event)
  if not event[3] then
    return write_event(event)
  end
  local key = prefix .. 'job_events:' .. event[3]
  if redis.call('LLEN', key) >= MAX_EVENTS then
    return count_omitted_event(key, event)
  end
  redis.call('RPUSH', key, write_event(event))
end

-- A deletion is about a job that no longer exists, and some actions concern no job: they go to the audit log alone.
local function record_event(event)
  local is_operator_action = is_action(event)
  if not is_operator_action or event[3] and event[1] ~= 'deleted' then
    append_job_event(event)
  end
  if is_operator_action then
    write_action(event, redis.call('INCR', prefix .. 'event_id'))
  end
end

local function delete_events(numbers)
  if #numbers > 0 then
    call_in_slices('HDEL', prefix .. 'events', numbers)
    call_in_slices('ZREM', prefix .. 'event_ids', numbers)
    call_in_slices('ZREM', prefix .. 'event_times', numbers)
  end
end

local BLOCK = 1000

local function block_of(seq)
  return math.floor(seq / BLOCK)
end

-- Delete the edges to the parents of a job.
local function delete_edges(id)
  local single_parent = redis.call('HGET', prefix .. 'single_parents', id)
  local edges = single_parent and {0, single_parent} or redis.call('HGETALL', prefix .. 'parents:' .. id)
  redis.call('HDEL', prefix .. 'unmet', id)
  for i = 1, #edges, 2 do
    redis.call('ZREM', prefix .. 'children:' .. string.match(edges[i + 1], '^%a+ (.*)$'), edge_member(id, edges[i]))
  end
  if #edges > 0 then
    redis.call('UNLINK', prefix .. 'parents:' .. id)
    redis.call('HDEL', prefix .. 'single_parents', id)
    if redis.call('DECRBY', prefix .. 'dependency_count', #edges / 2) <= 0 then
      redis.call('DEL', prefix .. 'dependency_count')
    end
  end
end

local function delete_job(job)
  local id = job.id
  if has_dependencies() then
    delete_edges(id)
  end
  delete_events(redis.call('LRANGE', prefix .. 'job_events:' .. id, 0, -1))
  redis.call('HDEL', prefix .. 'headers', id)
  -- Most jobs completed at their only attempt, which has begun.
  if job.header[ATTEMPT] > 1 or job.header[STATE] ~= 'completed' then
    redis.call('HDEL', prefix .. 'unstarted', id)
  end
  redis.call(
    'UNLINK',
    prefix .. 'body:' .. string.format('%.0f', job.header[SEQ]),
    prefix .. 'failed_attempts:' .. id,
    prefix .. 'job_events:' .. id,
    prefix .. 'progress:' .. id,
    prefix .. 'logs:' .. id,
    prefix .. 'steps:' .. id
  )
  redis.call('HINCRBY', prefix .. 'removed_counts', job.header[QUEUE], 1)
  local block = block_of(job.header[SEQ])
  block_changes[block] = (block_changes[block] or 0) - 1
end

local function write_indexes()
  for key, list in pairs(removals) do
    call_in_slices('ZREM', key, list)
  end
  for key, list in pairs(additions) do
    call_in_slices('ZADD', key, list)
  end
  for name, change in pairs(count_changes) do
    if change ~= 0 then
      redis.call('HINCRBY', prefix .. 'counts', name, change)
    end
  end
  removals, additions, count_changes = {}, {}, {}
end

local function write_keys()
  for queue, keys in pairs(unique_changes) do
    for key, id in pairs(keys) do
      if id then
        redis.call('HSET', prefix .. 'unique:' .. queue, key, id)
      else
        redis.call('HDEL', prefix .. 'unique:' .. queue, key)
      end
    end
  end
  for queue, keys in pairs(idempotency_changes) do
    for key, entry in pairs(keys) do
      redis.call('HSET', prefix .. 'idempotency:' .. queue, key, cmsgpack.pack(entry))
      redis.call('ZADD', prefix .. 'idempotency_until:' .. queue, entry[2], key)
    end
  end
  unique_changes, idempotency_changes = {}, {}
end

-- Update the sets of lanes with jobs; a queue without lanes costs nothing.
local function write_lanes()
  for queue, changes in pairs(lane_changes) do
    for lane, is_used in pairs(changes) do
      local fairness_key = string.match(lane, '^fairness:(.*)')
      local is_empty = not is_used
        and redis.call('EXISTS', ready_key(queue, lane, false), ready_key(queue, lane, true)) == 0
      if fairness_key and is_used then
        join_fairness_key(queue, fairness_key)
      elseif fairness_key and is_empty then
        leave_fairness_key(queue, fairness_key)
      elseif is_used then
        redis.call('SADD', prefix .. 'lanes:' .. queue, lane)
      elseif is_empty then
        redis.call('SREM', prefix .. 'lanes:' .. queue, lane)
      end
    end
  end
  lane_changes = {}
end

local function write_blocks()
  for block, change in pairs(block_changes) do
    local jobs = redis.call('HINCRBY', prefix .. 'block_jobs', block, change)
    if jobs == 0 then
      redis.call('HDEL', prefix .. 'block_jobs', block)
      redis.call('ZREM', prefix .. 'blocks', block)
    elseif jobs == change then
      redis.call('ZADD', prefix .. 'blocks', block, block)
    end
  end
  block_changes = {}
end

local function write_leases()
  for worker in pairs(new_lease_holders) do
    redis.call('SADD', prefix .. 'lease_holders', worker)
  end
  for id, reason in pairs(cancel_changes) do
    if reason then
      redis.call('HSET', prefix .. 'cancel_requests', id, reason)
    else
      redis.call('HDEL', prefix .. 'cancel_requests', id)
    end
  end
  new_lease_holders, cancel_changes = {}, {}
end

-- One command for a job with many parents, and one for a job with many children.
local function write_new_dependencies()
  for id, parent_pairs in pairs(new_parents) do
    call_in_slices('HSET', prefix .. 'parents:' .. id, parent_pairs)
  end
  call_in_slices('HSET', prefix .. 'single_parents', new_single_parents)
  local key, open = prefix .. 'children:', string.format('%d', OPEN)
  for parent, entries in pairs(new_children) do
    if type(entries) == 'string' then
      redis.call('ZADD', key .. parent, open, entries)
    else
      call_in_slices('ZADD', key .. parent, entries)
    end
  end
  redis.call('INCRBY', prefix .. 'dependency_count', new_dependency_count)
  has_any_dependencies = true
end

local function write_replaced_ids()
  for _, id in ipairs(replaced_ids) do
    local sequence = redis.call('HGET', prefix .. 'job_sequence', id)
    local key = prefix .. 'sequence:' .. sequence
    local placeholder = id .. '\0' .. redis.call('INCR', prefix .. 'sequence_position')
    redis.call('ZADD', key, redis.call('ZSCORE', key, id), placeholder)
    redis.call('ZREM', key, id)
    redis.call('HSET', prefix .. 'job_sequence', placeholder, sequence)
    redis.call('HDEL', prefix .. 'job_sequence', id)
    outbox_entries[#outbox_entries + 1] = cmsgpack.pack({placeholder, 'deleted'})
  end
  replaced_ids = {}
end

local function write_sequence_positions()
  for i = 1, #sequence_joins, 2 do
    local id, sequence = sequence_joins[i], sequence_joins[i + 1]
    redis.call('ZADD', prefix .. 'sequence:' .. sequence, redis.call('INCR', prefix .. 'sequence_position'), id)
    redis.call('HSET', prefix .. 'job_sequence', id, sequence)
    has_any_dependencies = true
  end
end

local function write_unmet()
  local blocked, unblocked = {}, {}
  for id, edge_count in pairs(unmet_changes) do
    if edge_count > 0 then
      blocked[#blocked + 1] = id
      blocked[#blocked + 1] = edge_count
    else
      unblocked[#unblocked + 1] = id
    end
  end
  call_in_slices('HSET', prefix .. 'unmet', blocked)
  call_in_slices('HDEL', prefix .. 'unmet', unblocked)
end

local function write_dependencies()
  if new_dependency_count > 0 then
    write_new_dependencies()
  end
  write_replaced_ids()
  write_sequence_positions()
  if next(unmet_changes) then
    write_unmet()
  end
  if #outbox_entries > 0 then
    call_in_slices('RPUSH', prefix .. 'dependency_outbox', outbox_entries)
    has_outbox_entries = true
  end
  new_parents, new_single_parents, new_children, new_dependency_count = {}, {}, {}, 0
  unmet_changes, outbox_entries, sequence_joins, joined_sequences = {}, {}, {}, {}
end

local function write_queue(name, queue)
  redis.call('HSET', prefix .. 'queues', name, cmsgpack.pack(queue))
end

function flush()
  for name in pairs(new_queues) do
    write_queue(name, queue_cache[name])
  end
  new_queues = {}
  for _, write in ipairs(deferred_writes) do
    write()
  end
  for first = 1, #body_writes, SLICE do
    redis.call('MSET', unpack(body_writes, first, math.min(first + SLICE - 1, #body_writes)))
  end
  call_in_slices('HSET', prefix .. 'headers', header_writes)
  for i = 1, #header_writes, 2 do
    if loaded_jobs[header_writes[i]] then
      loaded_jobs[header_writes[i]].is_indexed = false
    end
  end
  deferred_writes, body_writes, header_writes = {}, {}, {}
  write_indexes()
  write_keys()
  write_lanes()
  write_leases()
  write_dependencies()
  for scope, bucket in pairs(enqueue_buckets) do
    if bucket.is_charged then
      local packed = cmsgpack.pack({bucket.parts, now})
      -- Twice the time that the slowest rate takes to fill it: this rate may be lowered.
      redis.call('SET', prefix .. 'enqueue_bucket:' .. scope, packed, 'PX', 7200000)
    end
  end
  enqueue_buckets = {}
  for _, job in ipairs(removed_jobs) do
    delete_job(job)
  end
  removed_jobs = {}
  write_blocks()
  for _, event in ipairs(new_events) do
    record_event(event)
  end
  new_events = {}
end

-- End of every script that writes. The script itself publishes the wake-up: no commit without it. A reply in
-- `has_outbox_entries` means that a job has ended that others depend on; the caller calls `propagate` then.
local function finish(answer)
  flush()
  if needs_wakeup then
    redis.call('PUBLISH', prefix .. 'wakeups', '1')
  end
  if has_outbox_entries then
    return {'has_outbox_entries', answer}
  end
  return answer
end
