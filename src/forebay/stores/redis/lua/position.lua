#!lua flags=no-writes
-- position: number of jobs before a pending job of its queue, and of jobs completed in a window.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: id, exact_up_to, window_ms
-- Returns {jobs before it, completed jobs}; nothing for a job outside the queue's main order.
local job = load_job(request.id)
if not job or job.header[STATE] ~= 'pending' or job.header[LANE] then
  return false
end
local header = job.header
local name = header[QUEUE]
local cap = cap_ms(load_queue(name))
local own_order = ready_key(name, false, header[AGE_CAPPED])
local other_order = ready_key(name, false, not header[AGE_CAPPED])
local ahead = redis.call('ZRANK', own_order, member_of_job(job)) or 0
-- Rank below which a job of the other order goes first. At this very rank the lower seq goes first.
local rank = header[RANK] + (header[AGE_CAPPED] and now - cap or cap - now)
ahead = ahead + redis.call('ZCOUNT', other_order, '-inf', '(' .. string.format('%.0f', rank))
for _, entry in ipairs(redis.call('ZRANGEBYSCORE', other_order, rank, rank, 'LIMIT', 0, request.exact_up_to)) do
  if entry < member_of_job(job) then
    ahead = ahead + 1
  end
end
return {ahead, completed_since(name, now - request.window_ms)}
