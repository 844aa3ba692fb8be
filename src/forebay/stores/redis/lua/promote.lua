#!lua flags=allow-oom
-- promote: make due jobs of all queues pending, earliest first; cancel jobs that have expired.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: limit
-- Returns the number of jobs moved.
local moved = expire_jobs(request.limit)
local due_rows = {}
for _, name in ipairs(queue_names()) do
  local key, entries = prefix .. 'delayed:' .. name, {}
  if load_queue(name)[Q_STAGGER_JOBS] then
    moved = moved + promote_queue(name, request.limit)
  else
    entries = redis.call('ZRANGEBYSCORE', key, '-inf', now, 'WITHSCORES', 'LIMIT', 0, request.limit)
  end
  for i = 1, #entries, 2 do
    due_rows[#due_rows + 1] = {tonumber(entries[i + 1]), entries[i], key}
  end
end
table.sort(due_rows, function(left, right)
  if left[1] ~= right[1] then
    return left[1] < right[1]
  end
  return left[2] < right[2]
end)
if redis.call('EXISTS', prefix .. 'dependency_outbox') == 1 then
  has_outbox_entries = true
end
local jobs = {}
for i = 1, math.min(#due_rows, request.limit) do
  local job = load_job(id_in(due_rows[i][2]))
  if job then
    jobs[#jobs + 1] = job
  else
    defer_remove(due_rows[i][3], due_rows[i][2])
  end
end
return finish(moved + promote_jobs(jobs))
