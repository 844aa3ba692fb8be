-- How far the order is known: '-' for nothing of it, '+' for all of it, else "rank:seq" of the last place that is.

local function bound_of(text)
  local rank, seq = string.match(text, '^(-?%d+):(%d+)$')
  return tonumber(rank), tonumber(seq)
end

local function is_within(text, rank, seq)
  if text == '+' then
    return true
  end
  local last_rank, last_seq = bound_of(text)
  if not last_rank then
    return false
  end
  return rank < last_rank or (rank == last_rank and seq <= last_seq)
end

-- Seqs in thirteen digits, so that places of the same rank stand in the order of their seqs.
local function member_of(seq)
  return string.format('%013d', seq)
end

-- Groups are {rank, {seq, ...}}. A command takes some thousand arguments at most.
local function put(key, groups, bound)
  local arguments = {}
  for _, group in ipairs(groups) do
    local rank = group[1]
    for _, seq in ipairs(group[2]) do
      if is_within(bound, rank, seq) then
        arguments[#arguments + 1] = string.format('%.0f', rank)
        arguments[#arguments + 1] = member_of(seq)
        if #arguments >= 1000 then
          redis.call('ZADD', key, unpack(arguments))
          arguments = {}
        end
      end
    end
  end
  if #arguments > 0 then
    redis.call('ZADD', key, unpack(arguments))
  end
end

-- What does not belong to the hottest part any more is let go of, and from then on nothing behind it is taken in: else
-- the next who comes in behind a gap would be named before all that lie in it.
local function trim(key, bound_key, most)
  if redis.call('ZCARD', key) > most then
    redis.call('ZREMRANGEBYRANK', key, most, -1)
    local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
    redis.call('SET', bound_key, string.format('%.0f:%d', tonumber(last[2]), tonumber(last[1])), 'KEEPTTL')
  end
end
