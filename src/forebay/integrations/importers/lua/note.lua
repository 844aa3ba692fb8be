-- Record that a message is about to be stored in the target; return its word, its name until it is removed.
-- A message that an earlier import has recorded and not removed keeps its word: it may be stored already.
-- Messages of one key are equal to the importer, so it does not matter which one gets which word.
-- KEYS: 1 the list or sorted set of messages  2 the records: a hash of words by key, with commas between
-- ARGV: 1 the message  2 1 if it is in a list  3 its key  4 its number among the equal messages of this page
--   5 its number among the messages of this page under this key  6 a new word  7 expiry of records in seconds
-- Returns the word, or nothing if a worker has taken the message.
local count = 0
if ARGV[2] == '1' then
  count = #redis.call('LPOS', KEYS[1], ARGV[1], 'RANK', -1, 'COUNT', ARGV[4])
elseif redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  count = 1
end
if count < tonumber(ARGV[4]) then
  return false
end
local tokens = {}
for token in string.gmatch(redis.call('HGET', KEYS[2], ARGV[3]) or '', '[^,]+') do
  tokens[#tokens + 1] = token
end
local nth = math.min(tonumber(ARGV[5]), #tokens + 1)
if not tokens[nth] then
  tokens[nth] = ARGV[6]
  redis.call('HSET', KEYS[2], ARGV[3], table.concat(tokens, ','))
end
redis.call('EXPIRE', KEYS[2], ARGV[7])
return tokens[nth]
