-- Take a message out together with its note, so that one that comes later under its key is not taken for it.
-- KEYS: 1 the list or sorted set of messages  2 the notes
-- ARGV: 1 the message  2 1 if it is in a list  3 its key  4 its word
-- Returns 1, or 0 if somebody has taken it: then the note stays, as it may have gone to another place.
local gone
if ARGV[2] == '1' then
  gone = redis.call('LREM', KEYS[1], -1, ARGV[1])
else
  gone = redis.call('ZREM', KEYS[1], ARGV[1])
end
if gone == 0 then
  return 0
end
local words = {}
for word in string.gmatch(redis.call('HGET', KEYS[2], ARGV[3]) or '', '[^,]+') do
  if word ~= ARGV[4] then
    words[#words + 1] = word
  end
end
if #words == 0 then
  redis.call('HDEL', KEYS[2], ARGV[3])
else
  redis.call('HSET', KEYS[2], ARGV[3], table.concat(words, ','))
end
return 1
