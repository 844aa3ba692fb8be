#!lua
-- Change one job, wholly or not at all. The caller has looked at it: if it is no longer what was seen, it
-- is told to look again.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: id, seen (the state), priority, delay_ms, metadata (whether it changes), actor, detail
--       2 the digest of the body that was seen  3 the new body
-- Returns {'again'}, {'refused', error}, or {'done', state}.
local job = find(ask.id)
if not job or job.head[STATE] ~= ask.seen then
  return {'again'}
end
local head = job.head
local body = body_key(head[SEQ])
if ask.metadata and redis.sha1hex(redis.call('GET', body) or '') ~= ARGV[2] then
  return {'again'}
end
if ask.priority then
  local queue = queue_of(head[QUEUE])
  if ask.priority < queue[Q_MIN_PRIORITY] or ask.priority > queue[Q_MAX_PRIORITY] then
    local span = {queue[Q_MIN_PRIORITY], queue[Q_MAX_PRIORITY]}
    return {'refused', {'InvalidJob', head[QUEUE], ask.priority, span[1], span[2]}}
  end
end
local seen = {head[STATE], head[PRIORITY], head[RUN_AT]}
if head[STATE] == 'running' then
  head[UPDATED_AT] = now
  rewrite(job)
else
  lift(job)
  head[UPDATED_AT] = now
  head[PRIORITY] = ask.priority or head[PRIORITY]
  local was = head[STATE]
  if ask.delay_ms and was ~= 'pending' then
    head[STATE] = ask.delay_ms == 0 and 'pending' or was
    head[GATE] = head[STATE] == 'pending' and gate_when_due(job)
    head[RUN_AT] = now + ask.delay_ms
    head[READY_AT] = head[ATTEMPT] > 0 and head[READY_AT] or head[RUN_AT]
  end
  if head[STATE] == 'pending' and (head[STATE] ~= was or ask.priority) then
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
  {'state', seen[1], head[STATE]}, {'priority', seen[2], head[PRIORITY]}, {'run_at', seen[3], head[RUN_AT]}
})
tell('amended', job, ask.actor, false, ask.detail, changes)
return finish({'done', head[STATE]})
