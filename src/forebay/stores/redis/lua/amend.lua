#!lua
-- Change one job, wholly or not at all. The caller has looked at it: if it is no longer what was seen, it
-- is told to look again.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: id, seen (the state), priority, delay_ms, metadata (whether it changes), queue, actor, detail, fresh
--         (a queue that nobody has configured)
--       2 the digest of the body that was seen  3 the new body
-- Returns {'again'}, {'stays', why}, {'refused', error}, or {'done', state}.
local job = find(ask.id)
if not job or job.head[STATE] ~= ask.seen then
  return {'again'}
end
local head = job.head
local body = body_key(head[SEQ])
if ask.metadata and redis.sha1hex(redis.call('GET', body) or '') ~= ARGV[2] then
  return {'again'}
end
local from, target = head[QUEUE], ask.queue or head[QUEUE]
local was, into = head[STATE], ask.delay_ms == 0 and 'pending' or head[STATE]
local is_moved = target ~= from
local queue, key = queue_of(target) or ask.fresh, head[UNIQUE_KEY]
if is_moved then
  if queue[Q_STATE] == 'draining' or queue[Q_STATE] == 'dropped' then
    return {'stays', 'queue ' .. target .. ' is ' .. queue[Q_STATE]}
  end
  local limit = into == 'pending' and queue[Q_MAX_LENGTH]
  if limit and count_of(target, 'pending') >= limit then
    return {'stays', 'queue ' .. target .. ' is full: ' .. string.format('%.0f', limit) .. ' pending jobs are allowed'}
  end
  -- One that was started may have freed its key.
  key = key and unique_holder(from, key) == job.id and key
  local holder = key and unique_holder(target, key)
  if holder then
    return {'stays', 'its unique key is held by ' .. holder}
  end
end
local priority = ask.priority or head[PRIORITY]
if (ask.priority or is_moved) and (priority < queue[Q_MIN_PRIORITY] or priority > queue[Q_MAX_PRIORITY]) then
  return {'refused', {'InvalidJob', target, priority, queue[Q_MIN_PRIORITY], queue[Q_MAX_PRIORITY]}}
end
local seen = {head[STATE], head[PRIORITY], head[RUN_AT]}
if head[STATE] == 'running' then
  head[UPDATED_AT] = now
  rewrite(job)
else
  lift(job)
  head[UPDATED_AT], head[PRIORITY] = now, priority
  if is_moved then
    open_queue(target)
    redis.call('HINCRBY', prefix .. 'removed', from, 1)  -- in the other one it counts as one that came
    head[QUEUE] = target
    if key then
      set_unique(from, key, false)
      set_unique(target, key, job.id)
    end
  end
  if into == 'pending' and (is_moved or was ~= into) then
    head[GATE] = gate_when_due(job)
  end
  if ask.delay_ms and was ~= 'pending' then
    head[STATE] = into
    head[RUN_AT] = now + ask.delay_ms
    head[READY_AT] = head[ATTEMPT] > 0 and head[READY_AT] or head[RUN_AT]
  end
  if into == 'pending' and (into ~= was or is_moved or ask.priority) then
    put_pending(job)
  else
    put(job)
  end
end
if ask.metadata then
  bodies[#bodies + 1] = body
  bodies[#bodies + 1] = ARGV[3]
end
local changes = changed({
  {'state', seen[1], head[STATE]}, {'queue', from, target}, {'priority', seen[2], head[PRIORITY]},
  {'run_at', seen[3], head[RUN_AT]}
})
tell('amended', job, ask.actor, false, ask.detail, changes)
return finish({'done', head[STATE]})
