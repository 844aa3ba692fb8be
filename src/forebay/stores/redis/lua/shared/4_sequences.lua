-- Sequences: of the jobs of one, the first may run; the others are blocked until it is final or gone.
local turns = {}   -- id, sequence, ... of jobs that come last in theirs
local joined = {}  -- sequence -> true for these
local renamed = {} -- ids of jobs that are gone, which somebody brings again

-- A job that is gone stands in its sequence under an id of nobody, until the list comes to it. By its own id it would be
-- taken for the job that is brought now, and stay for ever.
local function leave_later(id)
  if redis.call('HEXISTS', prefix .. 'sequence_of', id) == 1 then
    renamed[#renamed + 1] = id
  end
end

-- Whether a job that comes last in a sequence now comes after others.
local function is_begun(sequence)
  return joined[sequence] or redis.call('EXISTS', prefix .. 'sequence:' .. sequence) == 1
end

local function join_sequence(sequence, id)
  turns[#turns + 1] = id
  turns[#turns + 1] = sequence
  joined[sequence] = true
end

-- A job that is revived comes last in its sequence; one whose end was not heard of there keeps its place. Answers
-- whether it comes after others.
local function rejoin(sequence, id)
  local before = redis.call('ZRANK', prefix .. 'sequence:' .. sequence, id)
  if before then
    return before > 0
  end
  local is_behind = is_begun(sequence)
  join_sequence(sequence, id)
  return is_behind
end
