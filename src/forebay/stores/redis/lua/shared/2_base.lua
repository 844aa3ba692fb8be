-- Base of every script: the key prefix, the request, and the shape of stored values.
-- KEYS[1] is the namespace, such as {forebay}. All other keys begin with it, and so lie in the same slot.
-- ARGV[1] is the request as MessagePack. Bytes that Lua must not parse follow as arguments of their own.
local prefix = KEYS[1] .. ':'
local request = cmsgpack.unpack(ARGV[1])
local now = now_ms()

-- unpack() fails somewhere between 7,000 and 8,000 values.
local SLICE = 2000

-- Header of a job: all fields that change or that scripts need. `false` stands for nothing.
-- First the fields that jobs of one group share, then the job's own fields, then its state.
local QUEUE, TASK, PRIORITY, LEASE_MS, EXTENSION_MS, UNTIL_STARTED = 1, 2, 3, 4, 5, 6
local SEQ, CREATED_AT, READY_AT, RUN_AT, RANK = 7, 8, 9, 10, 11
local STATE, ATTEMPT, WORKER, STARTED_AT, UPDATED_AT, FINISHED_AT = 12, 13, 14, 15, 16, 17
local LANE, AGE_CAPPED, RESCORE_AT, DEADLINE_AT, EXPIRES_AT, UNIQUE_KEY = 18, 19, 20, 21, 22, 23
local CANCEL_REASON, SWEPT_FROM, REASON, FAILURES, CRASHES, ERRORS, RESULT = 24, 25, 26, 27, 28, 29, 30

-- Queue: its state, its settings as text for readers, and as numbers for scripts.
local Q_STATE, Q_SETTINGS, Q_SCORING_VERSION, Q_RESCORED_TO_SEQ, Q_CREATED_AT, Q_UPDATED_AT = 1, 2, 3, 4, 5, 6
local Q_LEASE_MS, Q_MAX_LENGTH, Q_DEFAULT_PRIORITY, Q_MIN_PRIORITY, Q_MAX_PRIORITY = 7, 8, 9, 10, 11
local Q_AGING_MS, Q_CAP, Q_PENALTY, Q_DEADLINE_WEIGHT, Q_HORIZON_MS = 12, 13, 14, 15, 16
local Q_KEEP_FINISHED_MS, Q_KEEP_DEAD_MS, Q_ARCHIVE, Q_KEEP_ARCHIVE_MS = 17, 18, 19, 20
local Q_ENQUEUE_RATE, Q_ENQUEUE_BURST, Q_CLIENT_RATE, Q_CLIENT_BURST = 21, 22, 23, 24
local Q_FAIRNESS_WEIGHTS, Q_STAGGER_JOBS, Q_STAGGER_MS = 25, 26, 27

local WAITING = {scheduled = true, blocked = true, pending = true, retrying = true}
local FINAL = {completed = true, dead = true, cancelled = true}

-- Equal scores are ordered by member as bytes, so the seq has a fixed width.
local function member_of(id, seq)
  return string.format('%013.0f:', seq) .. id
end

local function id_in(entry)
  return string.sub(entry, 15)
end

local function ids_in(entries)
  local ids = {}
  for i, entry in ipairs(entries) do
    ids[i] = string.sub(entry, 15)
  end
  return ids
end

local function call_in_slices(command, key, list)
  for first = 1, #list, SLICE do
    redis.call(command, key, unpack(list, first, math.min(first + SLICE - 1, #list)))
  end
end

-- HMGET or MGET of any number of names.
local function fetch(command, names, key)
  if key and #names > 0 and #names <= SLICE then
    return redis.call(command, key, unpack(names))
  end
  local values = {}
  for first = 1, #names, SLICE do
    local last = math.min(first + SLICE - 1, #names)
    local part
    if key then
      part = redis.call(command, key, unpack(names, first, last))
    else
      part = redis.call(command, unpack(names, first, last))
    end
    for i = 1, last - first + 1 do
      values[first + i - 1] = part[i]
    end
  end
  return values
end

local function ready_key(queue, lane, capped)
  if lane then
    return prefix .. (capped and 'lane_capped:' or 'lane:') .. queue .. ':' .. lane
  end
  return prefix .. (capped and 'ready_capped:' or 'ready:') .. queue
end

local function trunc(number)
  return number >= 0 and math.floor(number) or math.ceil(number)
end
