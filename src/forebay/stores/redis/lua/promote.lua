#!lua flags=allow-oom
-- Make due jobs of all queues pending, earliest first, and cancel those that were not started in time.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: limit
-- Returns how many jobs moved.
local moved = expire(ask.limit)
local found = {}
for _, name in ipairs(queue_names()) do
  local key, due = prefix .. 'due:' .. name, {}
  if queue_of(name)[Q_STAGGER_JOBS] then
    moved = moved + promote_in(name, ask.limit)
  else
    due = redis.call('ZRANGEBYSCORE', key, '-inf', now, 'WITHSCORES', 'LIMIT', 0, ask.limit)
  end
  for i = 1, #due, 2 do
    found[#found + 1] = {tonumber(due[i + 1]), due[i], key}
  end
end
table.sort(found, function(one, other)
  if one[1] ~= other[1] then
    return one[1] < other[1]
  end
  return one[2] < other[2]
end)
if redis.call('EXISTS', prefix .. 'aftermaths') == 1 then
  has_listed = true
end
local jobs = {}
for i = 1, math.min(#found, ask.limit) do
  local job = find(id_in(found[i][2]))
  if job then
    jobs[#jobs + 1] = job
  else
    remove_later(found[i][3], found[i][2])
  end
end
return finish(moved + promote_all(jobs))
