#!lua flags=allow-oom
-- The schedules that are worth a look, the first first. A name without a schedule is forgotten: a server may have
-- lost what was written last, and it would stand before all others for ever.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: limit
-- Returns the time, the schedules, and after how long the next one is due, false if there is none.
local due = prefix .. 'schedule_checks'
local names = redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, request.limit)
local later = redis.call('ZRANGEBYSCORE', due, string.format('(%.0f', now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local found = fetch('HMGET', names, prefix .. 'schedules')
for i, name in ipairs(names) do
  if not found[i] then
    delete_schedule(name)
  end
end
return {now, found, later[2] and later[2] - now or false}
