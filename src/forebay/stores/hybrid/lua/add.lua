#!lua
-- Jobs that have come into a queue's order, as far as the order is known; those behind that are left to `fill`.
-- KEYS: 1 the prefix
-- ARGV: 1 queue, 2 how many places are kept, 3 groups of places, 4 the channel to tell, or nothing,
--       5 a claim that was given up, whose places these are, or nothing
local hot, bound_key = KEYS[1] .. ':hot:' .. ARGV[1], KEYS[1] .. ':end:' .. ARGV[1]
local bound = redis.call('GET', bound_key)
if bound and ARGV[3] ~= '' then
  put(hot, cmsgpack.unpack(ARGV[3]), bound)
  trim(hot, bound_key, tonumber(ARGV[2]))
  -- An order that was empty for a moment is made anew here, and has to end when what is known of it does.
  local left = redis.call('PTTL', bound_key)
  if left > 0 then
    redis.call('PEXPIRE', hot, left)
  end
end
if ARGV[5] ~= '' then
  redis.call('HDEL', KEYS[1] .. ':taken:' .. ARGV[1], ARGV[5])
end
if ARGV[4] ~= '' then
  redis.call('PUBLISH', ARGV[4], '')
end
return 0
