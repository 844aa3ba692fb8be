#!lua
-- Name the places at the head of a queue's order to one who claims, and to nobody else. Which they are is remembered
-- until they were tried, so that whoever finds these jobs by other means knows that they are not missing here.
-- KEYS: 1 the prefix
-- ARGV: 1 queue, 2 how many, 3 at least so many, or none, 4 the name of this claim, 5 for how many ms all this is kept
-- Returns how far the order is known, how many places are left, and the places: seq and rank of each.
local hot, bound_key = KEYS[1] .. ':hot:' .. ARGV[1], KEYS[1] .. ':end:' .. ARGV[1]
local bound = redis.call('GET', bound_key)
if not bound then
  return { '-', 0 }
end
redis.call('PEXPIRE', bound_key, ARGV[5])
redis.call('PEXPIRE', hot, ARGV[5])
local count = redis.call('ZCARD', hot)
if count == 0 or count < tonumber(ARGV[3]) then
  return { bound, count }
end
local answer = redis.call('ZPOPMIN', hot, ARGV[2])
local time = redis.call('TIME')
local range = { time[1], answer[2], answer[1], answer[#answer], answer[#answer - 1] }
redis.call('HSET', KEYS[1] .. ':taken:' .. ARGV[1], ARGV[4], table.concat(range, ' '))
redis.call('PEXPIRE', KEYS[1] .. ':taken:' .. ARGV[1], ARGV[5])
local left = redis.call('ZCARD', hot)
table.insert(answer, 1, left)
table.insert(answer, 1, bound)
return answer
