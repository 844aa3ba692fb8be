-- Jobs as they are answered: id, head, body, the end of the lease, the last ten bad attempts, how many attempts
-- never began.
local ERRORS_KEPT = 10

local function body_key(seq)
  return prefix .. 'body:' .. string.format('%.0f', seq)
end

-- What a body says besides the payload, if one of the words is in it; nothing for most, and for what cannot be read.
local function options_of(body, word, other)
  if not string.find(body, '"' .. word .. '"', 1, true)
    and not (other and string.find(body, '"' .. other .. '"', 1, true)) then
    return {}
  end
  -- Behind the id a list of two begins, options and payload; only the first is looked at.
  local _, _, words = pcall(cmsgpack.unpack_one, body, 3 + struct.unpack('>H', body))
  local is_json, options = pcall(cjson.decode, words or '{}')
  return is_json and options or {}
end

local function options_in(job, word, other)
  return options_of(redis.call('GET', body_key(job.head[SEQ])) or '', word, other)
end

local function errors_of(job)
  return redis.call('LRANGE', prefix .. 'attempts:' .. job.id, -ERRORS_KEPT, -1)
end

-- A body with an empty payload; false for one that cannot be read.
local function without_payload(whole)
  if #whole < 2 then
    return false
  end
  local is_read, after = pcall(cmsgpack.unpack_one, whole, 3 + struct.unpack('>H', whole))
  return is_read and string.sub(whole, 1, after) .. '\196\0'
end

-- Only the beginning of a body is read: a payload may have a megabyte.
local OPTIONS_READ = 65536
local function options_only(key)
  return without_payload(redis.call('GETRANGE', key, 0, OPTIONS_READ - 1))
    or without_payload(redis.call('GET', key) or '')
end

-- Claimed bodies. A caller that has said how large a payload it takes reads the others apart.
local function within_bytes(found)
  for i, whole in ipairs(ask.max_payload and found or {}) do
    if whole and #whole > ask.max_payload then
      found[i] = without_payload(whole)
    end
  end
  return found
end

-- Bare rows have no payload, no result and no errors.
local function rows_of(jobs, is_bare)
  local names, ids, rows = {}, {}, {}
  for i, job in ipairs(jobs) do
    names[i], ids[i] = body_key(job.head[SEQ]), job.id
  end
  local found = is_bare and {} or fetch('MGET', names)
  local unstarted = fetch('HMGET', ids, prefix .. 'unstarted')
  for i, job in ipairs(jobs) do
    local head = job.head
    local ends_at = head[STATE] == 'running'
      and (job.lease_ends_at or redis.call('ZSCORE', prefix .. 'leases:' .. head[WORKER], member(job)))
    local errors = not is_bare and head[ERRORS] > 0 and errors_of(job)
    local standing, whole = job.packed, found[i]
    if is_bare then
      whole = options_only(names[i])
      if head[RESULT] then
        head[RESULT] = false
        standing = packed_of(head)
      end
    end
    rows[i] = {job.id, standing, whole, ends_at and tonumber(ends_at), errors, tonumber(unstarted[i] or 0)}
  end
  return rows
end

-- The fence: why this worker does not hold the lease on this attempt; false if it does.
local function why_not_held(job, attempt, worker)
  if not job then
    return 'gone'
  end
  local head = job.head
  if head[ATTEMPT] ~= attempt then
    return 'other attempt'
  end
  if head[STATE] ~= 'running' then
    return 'other state'
  end
  return head[WORKER] ~= worker and 'other worker'
end

-- Which running jobs of a worker shall stop, and why. Wishes are few: there is one only while its job runs.
local function cancels_of(worker)
  local found = {}
  if redis.call('HLEN', prefix .. 'wishes') == 0 then
    return found
  end
  local all = redis.call('HGETALL', prefix .. 'wishes')
  for i = 1, #all, 2 do
    local job = find(all[i])
    if job and job.head[STATE] == 'running' and job.head[WORKER] == worker then
      found[#found + 1] = {all[i], all[i + 1]}
    end
  end
  table.sort(found, function(one, other) return one[1] < other[1] end)
  return found
end

-- Every body begins with the length of its job's id and the id.
local function id_of_body(seq)
  local front = redis.call('GETRANGE', body_key(seq), 0, 1023)
  if #front < 2 then
    return
  end
  return string.sub(front, 3, 2 + struct.unpack('>H', front))
end
