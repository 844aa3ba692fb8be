-- Sequences: of the jobs of one, the first may run; the others are blocked until it is final or gone.
local sequence_joins = {}   -- id, sequence, ... of jobs that come last in theirs
local joined_sequences = {}  -- sequence -> true for these
local replaced_ids = {} -- ids of jobs that are gone, which somebody brings again

-- A job that is gone stands in its sequence under an id of nobody, until the list comes to it. By its own id it would be
-- taken for the job that is brought now, and stay for ever.
local function defer_leaving(id)
  if redis.call('HEXISTS', prefix .. 'job_sequence', id) == 1 then
    replaced_ids[#replaced_ids + 1] = id
  end
end

-- Whether a job that comes last in a sequence now comes after others.
local function has_live_jobs(sequence)
  return joined_sequences[sequence] or redis.call('EXISTS', prefix .. 'sequence:' .. sequence) == 1
end

local function join_sequence(sequence, id)
  sequence_joins[#sequence_joins + 1] = id
  sequence_joins[#sequence_joins + 1] = sequence
  joined_sequences[sequence] = true
end

-- A job that is revived comes last in its sequence; one whose end was not heard of there keeps its place. Answers
-- whether it comes after others.
local function rejoin_sequence(sequence, id)
  local rank = redis.call('ZRANK', prefix .. 'sequence:' .. sequence, id)
  if rank then
    return rank > 0
  end
  local is_blocked = has_live_jobs(sequence)
  join_sequence(sequence, id)
  return is_blocked
end
