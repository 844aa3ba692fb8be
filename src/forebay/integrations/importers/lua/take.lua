-- Remove a message together with its record, so that a later one under its key is not taken for it.
-- KEYS: 1 the list or sorted set of messages  2 the records
-- ARGV: 1 the message  2 1 if it is in a list  3 its key  4 its word
-- Returns 1, or 0 if a worker has taken it: then the record stays, as the message may have moved elsewhere.
local removed
if ARGV[2] == '1' then
  removed = redis.call('LREM', KEYS[1], -1, ARGV[1])
else
  removed = redis.call('ZREM', KEYS[1], ARGV[1])
end
if removed == 0 then
  return 0
end
local tokens = {}
for token in string.gmatch(redis.call('HGET', KEYS[2], ARGV[3]) or '', '[^,]+') do
  if token ~= ARGV[4] then
    tokens[#tokens + 1] = token
  end
end
if #tokens == 0 then
  redis.call('HDEL', KEYS[2], ARGV[3])
else
  redis.call('HSET', KEYS[2], ARGV[3], table.concat(tokens, ','))
end
return 1
