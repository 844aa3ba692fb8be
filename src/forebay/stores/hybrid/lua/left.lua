#!lua
-- Jobs that have left a queue's order: claimed by a look of the store's own, or by the claim of this name.
-- KEYS: 1 the prefix
-- ARGV: 1 queue, 2 the name of a claim, or nothing, 3 groups of places, or nothing
-- Returns how many of them should have been known here and were not.
local SECONDS = 5
local hot, taken = KEYS[1] .. ':hot:' .. ARGV[1], KEYS[1] .. ':taken:' .. ARGV[1]

-- Ranges of places that were named and not tried yet. Whoever does not come back from a claim has died, or has no wish
-- to talk to us; its range would hide what is missing.
local function ranges()
  local found, now = {}, tonumber(redis.call('TIME')[1])
  local fields = redis.call('HGETALL', taken)
  for i = 1, #fields, 2 do
    local at, low_rank, low_seq, high_rank, high_seq = string.match(fields[i + 1], '^(%d+) (%S+) (%d+) (%S+) (%d+)$')
    if now - tonumber(at) > SECONDS then
      redis.call('HDEL', taken, fields[i])
    else
      found[#found + 1] = { tonumber(low_rank), tonumber(low_seq), tonumber(high_rank), tonumber(high_seq) }
    end
  end
  return found
end

local function is_named(rank, seq, found)
  for _, range in ipairs(found) do
    local is_behind = rank > range[1] or (rank == range[1] and seq >= range[2])
    if is_behind and (rank < range[3] or (rank == range[3] and seq <= range[4])) then
      return true
    end
  end
  return false
end

if ARGV[2] ~= '' then
  redis.call('HDEL', taken, ARGV[2])
end
if ARGV[3] == '' then
  return 0
end
local bound = redis.call('GET', KEYS[1] .. ':end:' .. ARGV[1]) or '-'
local missing, found = 0, nil
for _, group in ipairs(cmsgpack.unpack(ARGV[3])) do
  for _, seq in ipairs(group[2]) do
    if redis.call('ZREM', hot, member_of(seq)) == 0 and is_within(bound, group[1], seq) then
      found = found or ranges()
      if not is_named(group[1], seq, found) then
        missing = missing + 1
      end
    end
  end
end
return missing
