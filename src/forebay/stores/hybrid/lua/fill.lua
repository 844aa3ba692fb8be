#!lua
-- The next part of a queue's order, as the store has it. Only if the order is known exactly up to where this part begins:
-- of two who bring the same part the second comes too late, and what it brings may be claimed by now.
-- KEYS: 1 the prefix
-- ARGV: 1 queue, 2 how many places are kept, 3 where the part begins, 4 up to where the order is known with it,
--       5 groups of places, 6 for how many ms all this is kept
local hot, bound_key = KEYS[1] .. ':hot:' .. ARGV[1], KEYS[1] .. ':end:' .. ARGV[1]
if (redis.call('GET', bound_key) or '-') ~= ARGV[3] then
  return 0
end
if ARGV[3] == '-' then
  redis.call('DEL', hot, KEYS[1] .. ':taken:' .. ARGV[1])  -- what is left of a time of which nobody knows the end
end
redis.call('SET', bound_key, ARGV[4], 'PX', ARGV[6])
put(hot, cmsgpack.unpack(ARGV[5]), '+')
redis.call('PEXPIRE', hot, ARGV[6])
trim(hot, bound_key, tonumber(ARGV[2]))
return 1
