#!lua flags=no-writes
-- search: jobs of one block of seqs that may match, newest first, with their bodies. The conditions hold for every
-- match and for few other jobs, so most others are neither sent nor parsed. Searching packed text takes a third of the
-- time of unpacking.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: below (a seq, false for the newest), limit, max_bytes; queues, states, tasks (lists, empty for
--   any); unique_key, created_from, created_before (false for any); words (in the body); text (in the body or the
--   reason, false for any)
-- Returns the seq reached (false at the end), the creation time of the last job checked, and rows.
local FRONT_BYTES = 1024

local function contains_any(packed, words)
  for i = 1, #words do
    if string.find(packed, words[i], 1, true) then
      return true
    end
  end
  return #words == 0
end

local function contains_all(packed, words)
  for i = 1, #words do
    if not string.find(packed, words[i], 1, true) then
      return false
    end
  end
  return true
end

local function may_match(packed)
  return contains_any(packed, request.queues) and contains_any(packed, request.states)
    and contains_any(packed, request.tasks)
    and (not request.unique_key or string.find(packed, request.unique_key, 1, true))
end

local function has_words(packed, body)
  return contains_all(body, request.words)
    and (not request.text or string.find(body, request.text, 1, true) or string.find(packed, request.text, 1, true))
end

local function is_in_time(header)
  return (not request.created_from or header[CREATED_AT] >= request.created_from)
    and (not request.created_before or header[CREATED_AT] < request.created_before)
end

local below = request.below or tonumber(redis.call('GET', prefix .. 'seq') or 0) + 1
local block = redis.call(
  'ZRANGE', prefix .. 'blocks', block_of(below - 1), '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1
)[1]
if not block then
  return {false, false, {}}
end
local last = math.min(below - 1, (block + 1) * BLOCK - 1)
local first = math.max(block * BLOCK, last - request.limit + 1)
local ids, body_keys, size = {}, {}, 0
for seq = last, first, -1 do
  local key = body_key(seq)
  local front = redis.call('GETRANGE', key, 0, FRONT_BYTES - 1)
  if #front > 1 then
    ids[#ids + 1], body_keys[#body_keys + 1] = string.sub(front, 3, 2 + struct.unpack('>H', front)), key
    size = size + (#front < FRONT_BYTES and #front or redis.call('STRLEN', key))
  end
  -- Large payloads must not make one call longer.
  if size >= request.max_bytes then
    first = seq
    break
  end
end
prefetch_headers(ids)
local candidates, candidate_keys = {}, {}
for i = 1, #ids do
  local packed = packed_headers[ids[i]]
  if packed and may_match(packed) then
    candidates[#candidates + 1], candidate_keys[#candidate_keys + 1] = ids[i], body_keys[i]
  end
end
local bodies = (request.text or #request.words > 0) and fetch('MGET', candidate_keys)
local jobs = {}
for i = 1, #candidates do
  local job = (not bodies or has_words(packed_headers[candidates[i]], bodies[i] or '')) and load_job(candidates[i])
  if job and is_in_time(job.header) then
    jobs[#jobs + 1] = job
  end
end
local seen = false
for i = #ids, 1, -1 do
  seen = seen or load_job(ids[i])
end
return {first, seen and seen.header[CREATED_AT], job_rows(jobs)}
