-- Dead and cancelled jobs that live again. ask: delay_ms, reset, actor, dependants, ended_before, fresh.

local together = {}  -- id -> whether it is revived in this call, so it is as good as alive

-- How an edge that had failed stands now that its child is revived; `into` if its parent is dead or cancelled. One that
-- is gone counts as met: nobody can revive it, and it may even have completed before it was forgotten.
local function reopened_state(parent, into)
  local job = find(parent)
  local state = job and job.head[STATE]
  if together[parent] then
    return OPEN
  end
  if not job or state == 'completed' then
    return MET
  end
  return (state == 'dead' or state == 'cancelled') and into or OPEN
end

-- Look at the parents of a job that is revived, and whose edges have failed or are open. Answers how many edges block it.
local function reopened(id, into)
  local blocking = 0
  if not has_edges() then
    return blocking
  end
  local all = edges_of(id)
  for i = 1, #all, 2 do
    local parent, name = string.match(all[i + 1], '^%a+ (.*)$'), edge_name(id, all[i])
    local key = prefix .. 'behind:' .. parent
    local state = tonumber(redis.call('ZSCORE', key, name))
    if state == FAILED then
      state = reopened_state(parent, into)
      redis.call('ZADD', key, state, name)
    elseif state == OPEN and is_met(parent) then
      state = MET
      redis.call('ZADD', key, state, name)
    end
    blocking = blocking + ((state == OPEN or state == HELD) and 1 or 0)
  end
  if #all > 0 then
    unmet[id] = blocking
  end
  return blocking
end

local function why_not_revived(job, target)
  local head = job.head
  if head[STATE] ~= 'dead' and head[STATE] ~= 'cancelled' then
    return 'a ' .. head[STATE] .. ' job cannot be revived'
  end
  if ask.ended_before and head[FINISHED_AT] >= ask.ended_before then
    return 'it has ended since'
  end
  local queue = queue_of(target)
  if queue and (queue[Q_STATE] == 'draining' or queue[Q_STATE] == 'dropped') then
    return 'queue ' .. target .. ' is ' .. queue[Q_STATE]
  end
  local holder = head[UNIQUE_KEY] and unique_holder(target, head[UNIQUE_KEY])
  return holder and 'its unique key is held by ' .. holder
end

local function revive(job, target, into)
  local head = job.head
  local was, from = head[STATE], head[QUEUE]
  open_queue(target)
  lift(job)
  if target ~= from then
    redis.call('HINCRBY', prefix .. 'removed', from, 1)  -- in the other one it counts as one that came
  end
  head[QUEUE] = target
  if ask.reset then
    head[FAILURES], head[CRASHES] = 0, 0
  end
  head[UPDATED_AT], head[READY_AT], head[RUN_AT] = now, now + ask.delay_ms, now + ask.delay_ms
  head[WORKER], head[STARTED_AT], head[CANCEL_REASON] = false, false, false
  head[FINISHED_AT], head[REASON], head[RESULT] = false, false, false
  if head[EXPIRES_AT] and head[EXPIRES_AT] <= now then
    head[EXPIRES_AT] = false
  end
  if head[UNIQUE_KEY] then
    set_unique(target, head[UNIQUE_KEY], job.id)
  end
  local blocking = reopened(job.id, into)
  local sequence = options_in(job, 'sequence').sequence
  if sequence then
    blocking = blocking + (rejoin(sequence, job.id) and 1 or 0)
    unmet[job.id] = blocking
  end
  put_new(job, blocking > 0, gate_when_due(job))
  list_aftermath(job.id, ask.dependants and 'revive' or 'revived')
  local changes = changed({{'state', was, head[STATE]}, {'queue', from, target}})
  tell('revived', job, ask.actor, false, '', changes)
end
