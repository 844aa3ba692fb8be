#!lua
-- Put dead and cancelled jobs back.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: ids, queue, delay_ms, reset, actor, fresh (a queue that nobody has configured)
-- Returns for each job {done, state, reason}.
local function why_not(job, target)
  local head = job.head
  if head[STATE] ~= 'dead' and head[STATE] ~= 'cancelled' then
    return 'a ' .. head[STATE] .. ' job cannot be revived'
  end
  local queue = queue_of(target)
  if queue and (queue[Q_STATE] == 'draining' or queue[Q_STATE] == 'dropped') then
    return 'queue ' .. target .. ' is ' .. queue[Q_STATE]
  end
  local holder = head[UNIQUE_KEY] and unique_holder(target, head[UNIQUE_KEY])
  return holder and 'its unique key is held by ' .. holder
end

local function revive(job, target)
  local head = job.head
  open_queue(target)
  lift(job)
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
  put_new(job)
  tell('revived', job, ask.actor, false, '')
end

local verdicts = {}
load(ask.ids)
for i, id in ipairs(ask.ids) do
  local job = find(id)
  local target = job and (ask.queue or job.head[QUEUE])
  local reason = job and why_not(job, target)
  if job and not reason then
    revive(job, target)
  end
  verdicts[i] = {job and not reason and 1 or 0, job and job.head[STATE], reason or ''}
end
return finish(verdicts)
