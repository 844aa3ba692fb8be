-- Note that a message is about to be stored elsewhere, and give the word it is known by until it is taken out.
-- One that an earlier import has noted and not taken out gets the word that it had: it may be stored already.
-- Messages of one key are the same to us, so it does not matter which of them gets which word.
-- KEYS: 1 the list or sorted set of messages  2 the notes: a hash of words by key, with commas between
-- ARGV: 1 the message  2 1 if it is in a list  3 its key  4 which one it is of this page with the same bytes
--   5 which one it is of this page under this key  6 a new word  7 how many seconds notes are kept
-- Returns the word, or nothing if somebody has taken the message.
local there = 0
if ARGV[2] == '1' then
  there = #redis.call('LPOS', KEYS[1], ARGV[1], 'RANK', -1, 'COUNT', ARGV[4])
elseif redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  there = 1
end
if there < tonumber(ARGV[4]) then
  return false
end
local words = {}
for word in string.gmatch(redis.call('HGET', KEYS[2], ARGV[3]) or '', '[^,]+') do
  words[#words + 1] = word
end
local nth = math.min(tonumber(ARGV[5]), #words + 1)
if not words[nth] then
  words[nth] = ARGV[6]
  redis.call('HSET', KEYS[2], ARGV[3], table.concat(words, ','))
end
redis.call('EXPIRE', KEYS[2], ARGV[7])
return words[nth]
