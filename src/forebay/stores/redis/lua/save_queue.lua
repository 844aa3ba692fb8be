#!lua
-- Write a queue that the caller has worked out from what it saw.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: name, queue, actor, detail, changes  2 the queue as it was seen, '' for none
-- Returns {'again'} if it has changed meanwhile, else {'done', whether it has jobs to be reordered}.
local seen = redis.call('HGET', prefix .. 'queues', ask.name) or ''
if seen ~= ARGV[2] then
  return {'again'}
end
local queue = ask.queue
queue[Q_UPDATED_AT] = now
if seen == '' then
  queue[Q_CREATED_AT] = now
end
local live = count_of(ask.name, 'scheduled', 'blocked', 'pending', 'running', 'retrying')
if live == 0 then
  queue[Q_REORDERED_TO] = false
end
if queue[Q_REORDERED_TO] == 0 then
  redis.call('HDEL', prefix .. 'capped_to', ask.name)
end
write_queue(ask.name, queue)
told[#told + 1] = {'queue', now, false, ask.name, false, ask.actor, ask.detail, ask.changes}
has_news = true
return finish({'done', cmsgpack.pack(queue)})
