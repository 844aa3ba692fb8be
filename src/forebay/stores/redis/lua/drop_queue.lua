#!lua flags=allow-oom
-- drop_queue: close a queue for good; with `force`, up to `limit` waiting jobs go to the dead letters.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: name, force, limit, actor
-- Returns {'refused', error}, or {'done', number of waiting jobs left}.
local queue = load_queue(request.name)
if not queue then
  return {'refused', {'QueueNotFound', request.name}}
end
local live = count_jobs(request.name, 'scheduled', 'blocked', 'pending', 'running', 'retrying')
if live > 0 and not request.force then
  return {'refused', {'QueueNotEmpty', request.name, live}}
end
if queue[Q_STATE] ~= 'dropped' then
  local changes = changes_json({{'state', queue[Q_STATE], 'dropped'}})
  queue[Q_STATE], queue[Q_UPDATED_AT] = 'dropped', now
  write_queue(request.name, queue)
  new_events[#new_events + 1] = {'queue_changed', now, false, request.name, false, request.actor, 'dropped', changes}
  needs_wakeup = true
end
mark_waiting_dead(request.name, request.limit)
return finish({'done', count_jobs(request.name, 'scheduled', 'blocked', 'pending', 'retrying')})
