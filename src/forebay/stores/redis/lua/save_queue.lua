#!lua
-- save_queue: write a queue that the caller has computed from its copy.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: name, queue, actor, detail, changes 2 the caller's copy, '' for none
-- Returns {'retry'} if it has changed meanwhile, else {'done', the stored queue}.
local seen = redis.call('HGET', prefix .. 'queues', request.name) or ''
if seen ~= ARGV[2] then
  return {'retry'}
end
local queue = request.queue
queue[Q_UPDATED_AT] = now
if seen == '' then
  queue[Q_CREATED_AT] = now
end
local live = count_jobs(request.name, 'scheduled', 'blocked', 'pending', 'running', 'retrying')
if live == 0 then
  queue[Q_RESCORED_TO_SEQ] = false
end
if queue[Q_RESCORED_TO_SEQ] == 0 then
  redis.call('HDEL', prefix .. 'capped_scan', request.name)
end
write_queue(request.name, queue)
new_events[#new_events + 1] = {'queue_changed', now, false, request.name, false, request.actor, request.detail, request.changes}
needs_wakeup = true
return finish({'done', cmsgpack.pack(queue)})
