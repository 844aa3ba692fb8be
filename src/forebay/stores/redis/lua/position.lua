#!lua flags=no-writes
-- How many jobs of its queue go before a pending one, and how many ended in the last minute.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: id, exact_up_to, pace_ms
-- Returns {ahead, completed in that time}; nothing for a job that stands in no order.
local job = find(ask.id)
if not job or job.head[STATE] ~= 'pending' or job.head[GATE] then
  return false
end
local head = job.head
local name = head[QUEUE]
local cap = cap_ms(queue_of(name))
local mine = ready_key(name, false, head[CAPPED])
local others = ready_key(name, false, not head[CAPPED])
local ahead = redis.call('ZRANK', mine, member(job)) or 0
-- The rank below which a job of the other class goes first; at this very rank the lower number does.
local rank = head[RANK] + (head[CAPPED] and now - cap or cap - now)
ahead = ahead + redis.call('ZCOUNT', others, '-inf', '(' .. string.format('%.0f', rank))
for _, one in ipairs(redis.call('ZRANGEBYSCORE', others, rank, rank, 'LIMIT', 0, ask.exact_up_to)) do
  if one < member(job) then
    ahead = ahead + 1
  end
end
return {ahead, completed_since(name, now - ask.pace_ms)}
