#!lua flags=allow-oom
-- Work on the list of what the ends of jobs mean for those that depend on them. Says the same as domain/workflow.py.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: limit (edges to look at); delay_ms, reset, actor, dependants, fresh for jobs that are revived
-- Returns how many edges were looked at.
local CONCERNED = {
  completed = {OPEN, OPEN}, dead = {OPEN, OPEN}, cancelled = {OPEN, OPEN}, deleted = {OPEN, HELD},
  cancel = {OPEN, HELD}, revived = {HELD, FAILED}, ['revive'] = {HELD, FAILED},
}

-- What becomes of an edge, and of its child if that is blocked.
local function sequel(word, how)
  if word == 'completed' then
    return MET
  end
  if word == 'revived' or word == 'revive' then
    return OPEN
  end
  if word == 'cancel' or how == 'cancel' or (word == 'deleted' and how == 'hold') then
    return FAILED, 'cancelled'
  end
  if how == 'fail' then
    return FAILED, 'dead'
  end
  return how == 'ignore' and MET or HELD
end

local function why_ended(word, parent)
  if word == 'cancel' then
    return 'cancelled with ' .. parent .. ', which it depends on'
  end
  return parent .. ', which it depends on, ' .. (word == 'deleted' and 'was deleted' or 'is ' .. word)
end

-- How many edges block a child, after one of them has changed.
local function count_unmet(id, was, into)
  local before = unmet[id] or tonumber(redis.call('HGET', prefix .. 'unmet', id) or 0)
  local change = ((into == OPEN or into == HELD) and 1 or 0) - ((was == OPEN or was == HELD) and 1 or 0)
  unmet[id] = before + change
  return unmet[id]
end

local function release(job)
  local head = job.head
  lift(job)
  head[RUN_AT] = math.max(head[RUN_AT], now)
  head[READY_AT], head[UPDATED_AT] = head[RUN_AT], now
  put_new(job, false, gate_when_due(job))
end

-- A job that does not live any more is out of its sequence, and the next one may run.
local function leave_sequence(id)
  local sequence = redis.call('HGET', prefix .. 'sequence_of', id)
  local job = sequence and find(id)
  if not sequence or (job and not FINAL[job.head[STATE]]) then
    return
  end
  local key = prefix .. 'sequence:' .. sequence
  local was_first = redis.call('ZRANK', key, id) == 0
  redis.call('ZREM', key, id)
  redis.call('HDEL', prefix .. 'sequence_of', id)
  local moved = was_first and redis.call('ZRANGE', key, 0, 0)[1] or (not was_first and job and id)
  if moved and count_unmet(moved, OPEN, MET) == 0 then
    local next_job = find(moved)
    if next_job and next_job.head[STATE] == 'blocked' then
      release(next_job)
    end
  end
end

local function settle_edge(word, parent, name)
  local id, number = string.match(name, '^(.*)%z(%d+)$')
  local job = find(id)
  if not job then
    redis.call('ZREM', prefix .. 'behind:' .. parent, name)
    return
  end
  local how = redis.call('HGET', prefix .. 'edges:' .. id, tonumber(number))
  local into, ending = sequel(word, string.match(how or '', '^%a+'))
  -- As it stands now: a child that was revived because of another edge to this parent has reopened this one too.
  local was = tonumber(redis.call('ZSCORE', prefix .. 'behind:' .. parent, name))
  redis.call('ZADD', prefix .. 'behind:' .. parent, into, name)
  local blocking = count_unmet(id, was, into)
  if word == 'cancel' then
    list_aftermath(id, word) -- before the line of its end, which would go by what the edges say
  end
  if word == 'revive' and was == FAILED then
    local target = job.head[QUEUE]
    if not why_not_revived(job, target) then
      flush()
      revive(job, target, HELD)
    end
  elseif job.head[STATE] == 'blocked' and ending then
    local reason = why_ended(word, parent)
    put_final(job, ending, reason, false)
    tell('parent', job, false, false, reason)
  elseif job.head[STATE] == 'blocked' and into == MET and blocking == 0 then
    release(job)
  end
end

local looked_at = 0
while looked_at < ask.limit do
  local packed = redis.call('LINDEX', prefix .. 'aftermaths', 0)
  if not packed then
    break
  end
  local line = cmsgpack.unpack(packed)
  local parent, word, room = line[1], line[2], ask.limit - looked_at
  local span = CONCERNED[word]
  if word == 'deleted' or FINAL[word] then
    leave_sequence(parent)
  end
  local found = redis.call('ZRANGEBYSCORE', prefix .. 'behind:' .. parent, span[1], span[2], 'LIMIT', 0, room)
  local ids = {}
  for i, name in ipairs(found) do
    ids[i] = string.match(name, '^(.*)%z')
  end
  load(ids)
  for _, name in ipairs(found) do
    settle_edge(word, parent, name)
  end
  flush()
  looked_at = looked_at + math.max(#ids, 1)
  if #ids < room then
    redis.call('LPOP', prefix .. 'aftermaths')
  end
end
has_listed = redis.call('EXISTS', prefix .. 'aftermaths') == 1
return finish(looked_at)
