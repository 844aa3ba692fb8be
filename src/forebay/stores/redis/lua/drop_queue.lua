#!lua flags=allow-oom
-- Close a queue for good; by force up to `limit` of its waiting jobs go to the dead letters.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: name, force, limit, actor
-- Returns {'refused', error}, or {'done', how many waiting jobs are left}.
local queue = queue_of(ask.name)
if not queue then
  return {'refused', {'QueueNotFound', ask.name}}
end
local live = count_of(ask.name, 'scheduled', 'blocked', 'pending', 'running', 'retrying')
if live > 0 and not ask.force then
  return {'refused', {'QueueNotEmpty', ask.name, live}}
end
if queue[Q_STATE] ~= 'dropped' then
  local changes = changed({{'state', queue[Q_STATE], 'dropped'}})
  queue[Q_STATE], queue[Q_UPDATED_AT] = 'dropped', now
  write_queue(ask.name, queue)
  told[#told + 1] = {'queue', now, false, ask.name, false, ask.actor, 'dropped', changes}
  has_news = true
end
bury(ask.name, ask.limit)
return finish({'done', count_of(ask.name, 'scheduled', 'blocked', 'pending', 'retrying')})
