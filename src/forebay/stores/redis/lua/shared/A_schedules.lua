-- Schedules: what one shall do, as text that scripts do not look into, and how far that has come.
local S_REVISION, S_NEXT_AT, S_DUE_AT, S_LAST_AT, S_LAST_JOB_ID = 2, 4, 5, 6, 7
local S_FIRED, S_SKIPPED, S_FAILED, S_CREATED_AT, S_UPDATED_AT = 8, 9, 10, 11, 12

local function schedule_of(name)
  local packed = redis.call('HGET', prefix .. 'schedules', name)
  return packed and cmsgpack.unpack(packed)
end

local function put_schedule(name, schedule)
  redis.call('HSET', prefix .. 'schedules', name, cmsgpack.pack(schedule))
  redis.call('ZADD', prefix .. 'schedule_names', 0, name)
  if schedule[S_DUE_AT] then
    redis.call('ZADD', prefix .. 'schedules_due', schedule[S_DUE_AT], name)
  else
    redis.call('ZREM', prefix .. 'schedules_due', name)
  end
end

local function forget_schedule(name)
  redis.call('ZREM', prefix .. 'schedule_names', name)
  redis.call('ZREM', prefix .. 'schedules_due', name)
  redis.call('UNLINK', prefix .. 'firings:' .. name)
  return redis.call('HDEL', prefix .. 'schedules', name) == 1
end
