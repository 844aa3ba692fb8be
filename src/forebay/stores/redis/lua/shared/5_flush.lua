-- Writing what a script has decided.
local MAX_EVENTS = 100

-- Whether an event is an action of an operator. A text costs nothing in scripts that tell no event.
local function is_action(event)
  local kinds = ' cancel forced revived replayed amended deleted queue limit schedule command key alert ramp '
  return string.find(kinds, ' ' .. event[1] .. ' ', 1, true)
end

-- The order lists what is no action: the audit log lists those.
local function write_event(event)
  local number = redis.call('INCR', prefix .. 'event_number')
  redis.call('HSET', prefix .. 'events', number, cmsgpack.pack(event))
  if not is_action(event) then
    redis.call('ZADD', prefix .. 'event_order', number, number)
  end
  redis.call('ZADD', prefix .. 'event_times', event[2], number)
  return number
end

local function write_action(event, number)
  redis.call('HSET', prefix .. 'audit', number, cmsgpack.pack(event))
  redis.call('ZADD', prefix .. 'audit_order', number, number)
end

local function count_more(list, event)
  local numbers = redis.call('LRANGE', list, 0, -1)
  for i, packed in ipairs(redis.call('HMGET', prefix .. 'events', unpack(numbers))) do
    local more = packed and cmsgpack.unpack(packed)
    if more and more[1] == 'more' then
      more[2], more[7] = event[2], string.format('%.0f', more[7] + 1)
      redis.call('HSET', prefix .. 'events', numbers[i], cmsgpack.pack(more))
      redis.call('ZADD', prefix .. 'event_times', more[2], numbers[i])
      return
    end
  end
  redis.call('RPUSH', list, write_event({'more', event[2], event[3], event[4], false, false, '1'}))
end

-- An event of a job, or a count of it where the job has as many as it may have.
local function record_history(event)
  if not event[3] then
    return write_event(event)
  end
  local list = prefix .. 'events_of:' .. event[3]
  if redis.call('LLEN', list) >= MAX_EVENTS then
    return count_more(list, event)
  end
  redis.call('RPUSH', list, write_event(event))
end

-- A deletion is told about a job that is gone, and some actions are about no job: these have no history.
local function record(event)
  local acts = is_action(event)
  if not acts or event[3] and event[1] ~= 'deleted' then
    record_history(event)
  end
  if acts then
    write_action(event, redis.call('INCR', prefix .. 'event_number'))
  end
end

local function forget_events(numbers)
  if #numbers > 0 then
    send('HDEL', prefix .. 'events', numbers)
    send('ZREM', prefix .. 'event_order', numbers)
    send('ZREM', prefix .. 'event_times', numbers)
  end
end

local BLOCK = 1000

local function block_of(seq)
  return math.floor(seq / BLOCK)
end

-- The edges to the parents of a job that goes.
local function forget_edges(id)
  local single = redis.call('HGET', prefix .. 'single_edges', id)
  local all = single and {0, single} or redis.call('HGETALL', prefix .. 'edges:' .. id)
  redis.call('HDEL', prefix .. 'unmet', id)
  for i = 1, #all, 2 do
    redis.call('ZREM', prefix .. 'behind:' .. string.match(all[i + 1], '^%a+ (.*)$'), edge_name(id, all[i]))
  end
  if #all > 0 then
    redis.call('UNLINK', prefix .. 'edges:' .. id)
    redis.call('HDEL', prefix .. 'single_edges', id)
    if redis.call('DECRBY', prefix .. 'edge_count', #all / 2) <= 0 then
      redis.call('DEL', prefix .. 'edge_count')
    end
  end
end

local function forget(job)
  local id = job.id
  if has_edges() then
    forget_edges(id)
  end
  forget_events(redis.call('LRANGE', prefix .. 'events_of:' .. id, 0, -1))
  redis.call('HDEL', prefix .. 'heads', id)
  -- Of most jobs the only attempt has completed, so it has begun.
  if job.head[ATTEMPT] > 1 or job.head[STATE] ~= 'completed' then
    redis.call('HDEL', prefix .. 'unstarted', id)
  end
  redis.call(
    'UNLINK',
    prefix .. 'body:' .. string.format('%.0f', job.head[SEQ]),
    prefix .. 'attempts:' .. id,
    prefix .. 'events_of:' .. id,
    prefix .. 'notes:' .. id,
    prefix .. 'lines:' .. id,
    prefix .. 'steps:' .. id
  )
  redis.call('HINCRBY', prefix .. 'removed', job.head[QUEUE], 1)
  local block = block_of(job.head[SEQ])
  blocks[block] = (blocks[block] or 0) - 1
end

local function write_places()
  for key, list in pairs(removals) do
    send('ZREM', key, list)
  end
  for key, list in pairs(additions) do
    send('ZADD', key, list)
  end
  for name, change in pairs(counted) do
    if change ~= 0 then
      redis.call('HINCRBY', prefix .. 'counts', name, change)
    end
  end
  removals, additions, counted = {}, {}, {}
end

local function write_keys()
  for queue, keys in pairs(unique) do
    for key, id in pairs(keys) do
      if id then
        redis.call('HSET', prefix .. 'unique:' .. queue, key, id)
      else
        redis.call('HDEL', prefix .. 'unique:' .. queue, key)
      end
    end
  end
  for queue, keys in pairs(once) do
    for key, held in pairs(keys) do
      redis.call('HSET', prefix .. 'once:' .. queue, key, cmsgpack.pack(held))
      redis.call('ZADD', prefix .. 'once_until:' .. queue, held[2], key)
    end
  end
  unique, once = {}, {}
end

-- Which gates have jobs behind them; a queue without any pays nothing.
local function write_gates()
  for queue, names in pairs(gates) do
    for gate, is_used in pairs(names) do
      local share = string.match(gate, '^fair:(.*)')
      local is_empty = not is_used
        and redis.call('EXISTS', ready_key(queue, gate, false), ready_key(queue, gate, true)) == 0
      if share and is_used then
        join_share(queue, share)
      elseif share and is_empty then
        leave_share(queue, share)
      elseif is_used then
        redis.call('SADD', prefix .. 'gates:' .. queue, gate)
      elseif is_empty then
        redis.call('SREM', prefix .. 'gates:' .. queue, gate)
      end
    end
  end
  gates = {}
end

local function write_blocks()
  for block, change in pairs(blocks) do
    local jobs = redis.call('HINCRBY', prefix .. 'block_jobs', block, change)
    if jobs == 0 then
      redis.call('HDEL', prefix .. 'block_jobs', block)
      redis.call('ZREM', prefix .. 'blocks', block)
    elseif jobs == change then
      redis.call('ZADD', prefix .. 'blocks', block, block)
    end
  end
  blocks = {}
end

local function write_leases()
  for worker in pairs(holders) do
    redis.call('SADD', prefix .. 'holders', worker)
  end
  for id, reason in pairs(wishes) do
    if reason then
      redis.call('HSET', prefix .. 'wishes', id, reason)
    else
      redis.call('HDEL', prefix .. 'wishes', id)
    end
  end
  holders, wishes = {}, {}
end

-- One command for a job that depends on many, and one for a job that many depend on.
local function write_new_edges()
  for id, needs in pairs(edges) do
    send('HSET', prefix .. 'edges:' .. id, needs)
  end
  send('HSET', prefix .. 'single_edges', single_edges)
  local key, open = prefix .. 'behind:', string.format('%d', OPEN)
  for parent, entries in pairs(behind) do
    if type(entries) == 'string' then
      redis.call('ZADD', key .. parent, open, entries)
    else
      send('ZADD', key .. parent, entries)
    end
  end
  redis.call('INCRBY', prefix .. 'edge_count', edge_count)
  are_edges_known = true
end

local function write_renamed()
  for _, id in ipairs(renamed) do
    local sequence = redis.call('HGET', prefix .. 'sequence_of', id)
    local key, nobody = prefix .. 'sequence:' .. sequence, id .. '\0' .. redis.call('INCR', prefix .. 'turn')
    redis.call('ZADD', key, redis.call('ZSCORE', key, id), nobody)
    redis.call('ZREM', key, id)
    redis.call('HSET', prefix .. 'sequence_of', nobody, sequence)
    redis.call('HDEL', prefix .. 'sequence_of', id)
    aftermaths[#aftermaths + 1] = cmsgpack.pack({nobody, 'deleted'})
  end
  renamed = {}
end

local function write_turns()
  for i = 1, #turns, 2 do
    local id, sequence = turns[i], turns[i + 1]
    redis.call('ZADD', prefix .. 'sequence:' .. sequence, redis.call('INCR', prefix .. 'turn'), id)
    redis.call('HSET', prefix .. 'sequence_of', id, sequence)
    are_edges_known = true
  end
end

local function write_unmet()
  local blocked, free = {}, {}
  for id, jobs in pairs(unmet) do
    if jobs > 0 then
      blocked[#blocked + 1] = id
      blocked[#blocked + 1] = jobs
    else
      free[#free + 1] = id
    end
  end
  send('HSET', prefix .. 'unmet', blocked)
  send('HDEL', prefix .. 'unmet', free)
end

local function write_edges()
  if edge_count > 0 then
    write_new_edges()
  end
  write_renamed()
  write_turns()
  if next(unmet) then
    write_unmet()
  end
  if #aftermaths > 0 then
    send('RPUSH', prefix .. 'aftermaths', aftermaths)
    has_listed = true
  end
  edges, single_edges, behind, unmet, aftermaths, edge_count, turns, joined = {}, {}, {}, {}, {}, 0, {}, {}
end

local function write_queue(name, queue)
  redis.call('HSET', prefix .. 'queues', name, cmsgpack.pack(queue))
end

function flush()
  for name in pairs(opened) do
    write_queue(name, queues[name])
  end
  opened = {}
  for _, act in ipairs(noted) do
    act()
  end
  for first = 1, #bodies, SLICE do
    redis.call('MSET', unpack(bodies, first, math.min(first + SLICE - 1, #bodies)))
  end
  send('HSET', prefix .. 'heads', heads)
  for i = 1, #heads, 2 do
    if loaded[heads[i]] then
      loaded[heads[i]].is_put = false
    end
  end
  noted, bodies, heads = {}, {}, {}
  write_places()
  write_keys()
  write_gates()
  write_leases()
  write_edges()
  for scope, bucket in pairs(buckets) do
    if bucket.is_taken then
      local packed = cmsgpack.pack({bucket.parts, now})
      -- Twice as long as the slowest rate takes to fill it: this one may be lowered.
      redis.call('SET', prefix .. 'bucket:' .. scope, packed, 'PX', 7200000)
    end
  end
  buckets = {}
  for _, job in ipairs(gone) do
    forget(job)
  end
  gone = {}
  write_blocks()
  for _, event in ipairs(told) do
    record(event)
  end
  told = {}
end

-- The end of every script that writes. A hint is published by the script itself: no commit without it. An answer in
-- `listed` says that a job has ended that others depend on; whoever asked calls `follow` then.
local function finish(answer)
  flush()
  if has_news then
    redis.call('PUBLISH', prefix .. 'news', '1')
  end
  if has_listed then
    return {'listed', answer}
  end
  return answer
end
