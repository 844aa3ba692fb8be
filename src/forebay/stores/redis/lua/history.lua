#!lua flags=no-writes
-- history: everything that is stored about one job.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: id
-- Returns {row, failed attempts, events, progress, log lines, steps}; nothing if there is no such job.
local job = load_job(request.id)
if not job then
  return false
end
local numbers = redis.call('LRANGE', prefix .. 'job_events:' .. request.id, 0, -1)
return {
  job_rows({job})[1],
  redis.call('LRANGE', prefix .. 'failed_attempts:' .. request.id, 0, -1),
  #numbers > 0 and redis.call('HMGET', prefix .. 'events', unpack(numbers)) or {},
  redis.call('GET', prefix .. 'progress:' .. request.id),
  redis.call('LRANGE', prefix .. 'logs:' .. request.id, 0, -1),
  redis.call('HGETALL', prefix .. 'steps:' .. request.id),
}
