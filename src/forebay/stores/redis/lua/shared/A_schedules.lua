-- Schedules: the definition as text that scripts do not parse, and the progress of the runs.
local S_REVISION, S_NEXT_RUN_AT, S_CHECK_AT, S_LAST_RUN_AT, S_LAST_JOB_ID = 2, 4, 5, 6, 7
local S_ENQUEUED_RUNS, S_SKIPPED_RUNS, S_FAILED_RUNS, S_CREATED_AT, S_UPDATED_AT = 8, 9, 10, 11, 12

local function load_schedule(name)
  local packed = redis.call('HGET', prefix .. 'schedules', name)
  return packed and cmsgpack.unpack(packed)
end

local function store_schedule(name, schedule)
  redis.call('HSET', prefix .. 'schedules', name, cmsgpack.pack(schedule))
  redis.call('ZADD', prefix .. 'schedule_names', 0, name)
  if schedule[S_CHECK_AT] then
    redis.call('ZADD', prefix .. 'schedule_checks', schedule[S_CHECK_AT], name)
  else
    redis.call('ZREM', prefix .. 'schedule_checks', name)
  end
end

local function delete_schedule(name)
  redis.call('ZREM', prefix .. 'schedule_names', name)
  redis.call('ZREM', prefix .. 'schedule_checks', name)
  redis.call('UNLINK', prefix .. 'schedule_runs:' .. name)
  return redis.call('HDEL', prefix .. 'schedules', name) == 1
end
