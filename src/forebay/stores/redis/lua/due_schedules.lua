#!lua flags=allow-oom
-- due_schedules: schedules whose check is due, earliest first.
-- Guarantees: a name without a schedule is removed. A server that lost its last writes may have such names, and they
--   would stay in front for ever.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: limit
-- Returns the time, the schedules, and the wait until the next check, false if there is none.
local due = prefix .. 'schedule_checks'
local names = redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, request.limit)
local later = redis.call('ZRANGEBYSCORE', due, string.format('(%.0f', now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local packed_schedules = fetch('HMGET', names, prefix .. 'schedules')
for i, name in ipairs(names) do
  if not packed_schedules[i] then
    delete_schedule(name)
  end
end
return {now, packed_schedules, later[2] and later[2] - now or false}
