#!lua
-- Forget a queue's order: jobs are missing of which nobody knows where. It is built anew by whoever next asks for it.
-- Once in a while for all who see that it is wrong: they see it at about the same time.
-- KEYS: 1 the prefix
-- ARGV: 1 queue, 2 for how many ms nobody else has it forgotten
if redis.call('SET', KEYS[1] .. ':forgot:' .. ARGV[1], '', 'NX', 'PX', ARGV[2]) then
  redis.call('DEL', KEYS[1] .. ':end:' .. ARGV[1], KEYS[1] .. ':hot:' .. ARGV[1], KEYS[1] .. ':taken:' .. ARGV[1])
end
return 0
