-- Reviving of dead and cancelled jobs. request: delay_ms, reset, actor, dependants, ended_before, default_queue.

local revived_together = {}  -- id -> whether this call revives it, so that it counts as live

-- State of a failed edge once its child is revived; `new_state` if its parent is dead or cancelled. A deleted parent
-- counts as met: it cannot be revived, and may have completed before it was deleted.
local function reopened_state(parent, new_state)
  local job = load_job(parent)
  local state = job and job.header[STATE]
  if revived_together[parent] then
    return OPEN
  end
  if not job or state == 'completed' then
    return MET
  end
  return (state == 'dead' or state == 'cancelled') and new_state or OPEN
end

-- Reopen the failed edges of a revived job, and mark open ones as met where they are. Returns the number of blocking
-- edges.
local function reopen_edges(id, new_state)
  local blocking = 0
  if not has_dependencies() then
    return blocking
  end
  local edges = parent_edges(id)
  for i = 1, #edges, 2 do
    local parent, name = string.match(edges[i + 1], '^%a+ (.*)$'), edge_member(id, edges[i])
    local key = prefix .. 'children:' .. parent
    local state = tonumber(redis.call('ZSCORE', key, name))
    if state == FAILED then
      state = reopened_state(parent, new_state)
      redis.call('ZADD', key, state, name)
    elseif state == OPEN and is_met(parent) then
      state = MET
      redis.call('ZADD', key, state, name)
    end
    blocking = blocking + ((state == OPEN or state == HELD) and 1 or 0)
  end
  if #edges > 0 then
    unmet_changes[id] = blocking
  end
  return blocking
end

local function revive_refusal(job, target)
  local header = job.header
  if header[STATE] ~= 'dead' and header[STATE] ~= 'cancelled' then
    return 'a ' .. header[STATE] .. ' job cannot be revived'
  end
  if request.ended_before and header[FINISHED_AT] >= request.ended_before then
    return 'it has ended since'
  end
  local queue = load_queue(target)
  if queue and (queue[Q_STATE] == 'draining' or queue[Q_STATE] == 'dropped') then
    return 'queue ' .. target .. ' is ' .. queue[Q_STATE]
  end
  local holder = header[UNIQUE_KEY] and unique_holder(target, header[UNIQUE_KEY])
  return holder and 'its unique key is held by ' .. holder
end

local function revive_job(job, target, new_state)
  local header = job.header
  local old_state, old_queue = header[STATE], header[QUEUE]
  ensure_queue(target)
  unindex_job(job)
  if target ~= old_queue then
    redis.call('HINCRBY', prefix .. 'removed_counts', old_queue, 1)  -- the target queue counts it as new
  end
  header[QUEUE] = target
  if request.reset then
    header[FAILURES], header[CRASHES] = 0, 0
  end
  header[UPDATED_AT], header[READY_AT], header[RUN_AT] = now, now + request.delay_ms, now + request.delay_ms
  header[WORKER], header[STARTED_AT], header[CANCEL_REASON] = false, false, false
  header[FINISHED_AT], header[REASON], header[RESULT] = false, false, false
  if header[EXPIRES_AT] and header[EXPIRES_AT] <= now then
    header[EXPIRES_AT] = false
  end
  if header[UNIQUE_KEY] then
    set_unique(target, header[UNIQUE_KEY], job.id)
  end
  local blocking = reopen_edges(job.id, new_state)
  local sequence = load_options(job, 'sequence').sequence
  if sequence then
    blocking = blocking + (rejoin_sequence(sequence, job.id) and 1 or 0)
    unmet_changes[job.id] = blocking
  end
  index_new(job, blocking > 0, lane_when_due(job))
  add_outbox_entry(job.id, request.dependants and 'revive' or 'revived')
  local changes = changes_json({{'state', old_state, header[STATE]}, {'queue', old_queue, target}})
  add_event('revived', job, request.actor, false, '', changes)
end
