-- Sequences: the first job may run; the others are blocked until it is final or deleted.
local sequence_joins = {}  -- id, sequence, ... of jobs appended to a sequence
local joined_sequences = {}  -- sequence -> true for these
local replaced_ids = {}  -- ids of deleted jobs that new jobs take over

-- A deleted job keeps its position under a placeholder id until its outbox entry is processed. Under its own id it
-- would be taken for the new job, and block the sequence for ever.
local function defer_leaving(id)
  if redis.call('HEXISTS', prefix .. 'job_sequence', id) == 1 then
    replaced_ids[#replaced_ids + 1] = id
  end
end

-- Whether a job that is appended to a sequence now comes after others.
local function has_live_jobs(sequence)
  return joined_sequences[sequence] or redis.call('EXISTS', prefix .. 'sequence:' .. sequence) == 1
end

local function join_sequence(sequence, id)
  sequence_joins[#sequence_joins + 1] = id
  sequence_joins[#sequence_joins + 1] = sequence
  joined_sequences[sequence] = true
end

-- A revived job is appended to its sequence; one whose end is still in the outbox keeps its position. Returns whether
-- it comes after others.
local function rejoin_sequence(sequence, id)
  local rank = redis.call('ZRANK', prefix .. 'sequence:' .. sequence, id)
  if rank then
    return rank > 0
  end
  local is_blocked = has_live_jobs(sequence)
  join_sequence(sequence, id)
  return is_blocked
end
