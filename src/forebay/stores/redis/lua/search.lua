#!lua flags=no-writes
-- The jobs of one block of seqs that may fit, newest first; with the bodies, since readers look into them. What is said
-- here of a job is true of all that fit, and of few others: so most of those that do not are neither sent nor read. To
-- look for a word in what is packed takes a third of the time that unpacking takes.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: below (a seq, false for the newest), most, most_bytes; queues, states and tasks (lists, empty for
-- any), unique_key, created_from and created_before (false for any), words (that a body has), text (that a body has, or
-- the reason; false for any)
-- Returns how far it has looked (false at the end), when the last job was created that it has seen there, and rows.
local FRONT = 1024

local function has_one(packed, names)
  for i = 1, #names do
    if string.find(packed, names[i], 1, true) then
      return true
    end
  end
  return #names == 0
end

local function has_all(packed, names)
  for i = 1, #names do
    if not string.find(packed, names[i], 1, true) then
      return false
    end
  end
  return true
end

local function may_fit(packed)
  return has_one(packed, ask.queues) and has_one(packed, ask.states) and has_one(packed, ask.tasks)
    and (not ask.unique_key or string.find(packed, ask.unique_key, 1, true))
end

local function has_words(packed, body)
  return has_all(body, ask.words)
    and (not ask.text or string.find(body, ask.text, 1, true) or string.find(packed, ask.text, 1, true))
end

local function is_in_time(head)
  return (not ask.created_from or head[CREATED_AT] >= ask.created_from)
    and (not ask.created_before or head[CREATED_AT] < ask.created_before)
end

local below = ask.below or tonumber(redis.call('GET', prefix .. 'seq') or 0) + 1
local block = redis.call(
  'ZRANGE', prefix .. 'blocks', block_of(below - 1), '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1
)[1]
if not block then
  return {false, false, {}}
end
local last = math.min(below - 1, (block + 1) * BLOCK - 1)
local first = math.max(block * BLOCK, last - ask.most + 1)
local ids, names, size = {}, {}, 0
for seq = last, first, -1 do
  local name = body_key(seq)
  local front = redis.call('GETRANGE', name, 0, FRONT - 1)
  if #front > 1 then
    ids[#ids + 1], names[#names + 1] = string.sub(front, 3, 2 + struct.unpack('>H', front)), name
    size = size + (#front < FRONT and #front or redis.call('STRLEN', name))
  end
  -- A look is no longer for large payloads.
  if size >= ask.most_bytes then
    first = seq
    break
  end
end
bring(ids)
local near, near_names = {}, {}
for i = 1, #ids do
  local packed = stored[ids[i]]
  if packed and may_fit(packed) then
    near[#near + 1], near_names[#near_names + 1] = ids[i], names[i]
  end
end
local found = (ask.text or #ask.words > 0) and fetch('MGET', near_names)
local jobs = {}
for i = 1, #near do
  local job = (not found or has_words(stored[near[i]], found[i] or '')) and find(near[i])
  if job and is_in_time(job.head) then
    jobs[#jobs + 1] = job
  end
end
local seen = false
for i = #ids, 1, -1 do
  seen = seen or find(ids[i])
end
return {first, seen and seen.head[CREATED_AT], rows_of(jobs)}
