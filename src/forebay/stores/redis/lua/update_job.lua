#!lua
-- update_job: change one job, all or nothing. If the job differs from the caller's copy, nothing is written.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: id, seen_state, priority, delay_ms, metadata (whether it changes), queue, actor, detail,
--   default_queue (a queue without settings) 2 digest of the body that the caller has read 3 new body
-- Returns {'retry'}, {'unchanged', reason}, {'refused', error}, or {'done', state}.
local job = load_job(request.id)
if not job or job.header[STATE] ~= request.seen_state then
  return {'retry'}
end
local header = job.header
local body = body_key(header[SEQ])
if request.metadata and redis.sha1hex(redis.call('GET', body) or '') ~= ARGV[2] then
  return {'retry'}
end
local from, target = header[QUEUE], request.queue or header[QUEUE]
local old_state, new_state = header[STATE], request.delay_ms == 0 and 'pending' or header[STATE]
local is_moved = target ~= from
local queue, key = load_queue(target) or request.default_queue, header[UNIQUE_KEY]
if is_moved then
  if queue[Q_STATE] == 'draining' or queue[Q_STATE] == 'dropped' then
    return {'unchanged', 'queue ' .. target .. ' is ' .. queue[Q_STATE]}
  end
  local limit = new_state == 'pending' and queue[Q_MAX_LENGTH]
  if limit and count_jobs(target, 'pending') >= limit then
    local allowed = string.format('%.0f', limit)
    return {'unchanged', 'queue ' .. target .. ' is full: ' .. allowed .. ' pending jobs are allowed'}
  end
  -- A job that was started may have freed its key.
  key = key and unique_holder(from, key) == job.id and key
  local holder = key and unique_holder(target, key)
  if holder then
    return {'unchanged', 'its unique key is held by ' .. holder}
  end
end
local priority = request.priority or header[PRIORITY]
if (request.priority or is_moved) and (priority < queue[Q_MIN_PRIORITY] or priority > queue[Q_MAX_PRIORITY]) then
  return {'refused', {'InvalidJob', target, priority, queue[Q_MIN_PRIORITY], queue[Q_MAX_PRIORITY]}}
end
local before = {header[STATE], header[PRIORITY], header[RUN_AT]}
if header[STATE] == 'running' then
  header[UPDATED_AT] = now
  write_header(job)
else
  unindex_job(job)
  header[UPDATED_AT], header[PRIORITY] = now, priority
  if is_moved then
    ensure_queue(target)
    redis.call('HINCRBY', prefix .. 'removed_counts', from, 1)  -- the target queue counts it as new
    header[QUEUE] = target
    if key then
      set_unique(from, key, false)
      set_unique(target, key, job.id)
    end
  end
  if new_state == 'pending' and (is_moved or old_state ~= new_state) then
    header[LANE] = lane_when_due(job)
  end
  if request.delay_ms and old_state ~= 'pending' then
    header[STATE] = new_state
    header[RUN_AT] = now + request.delay_ms
    header[READY_AT] = header[ATTEMPT] > 0 and header[READY_AT] or header[RUN_AT]
  end
  if new_state == 'pending' and (new_state ~= old_state or is_moved or request.priority) then
    index_pending(job)
  else
    index_job(job)
  end
end
if request.metadata then
  body_writes[#body_writes + 1] = body
  body_writes[#body_writes + 1] = ARGV[3]
end
local changes = changes_json({
  {'state', before[1], header[STATE]}, {'queue', from, target}, {'priority', before[2], header[PRIORITY]},
  {'run_at', before[3], header[RUN_AT]}
})
add_event('updated', job, request.actor, false, request.detail, changes)
return finish({'done', header[STATE]})
