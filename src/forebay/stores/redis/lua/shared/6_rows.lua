-- Rows of jobs: id, header, body, lease end, last ten failed attempts, number of unstarted attempts.
local MAX_ERRORS = 10

local function body_key(seq)
  return prefix .. 'body:' .. string.format('%.0f', seq)
end

-- Options of a body if it has one of the words; an empty table for most bodies, and for unreadable ones.
local function parse_options(body, word, other)
  if not string.find(body, '"' .. word .. '"', 1, true)
    and not (other and string.find(body, '"' .. other .. '"', 1, true)) then
    return {}
  end
  -- A list of two follows the id, options and payload; only the first is parsed.
  local _, _, words = pcall(cmsgpack.unpack_one, body, 3 + struct.unpack('>H', body))
  local is_json, options = pcall(cjson.decode, words or '{}')
  return is_json and options or {}
end

local function load_options(job, word, other)
  return parse_options(redis.call('GET', body_key(job.header[SEQ])) or '', word, other)
end

local function last_errors(job)
  return redis.call('LRANGE', prefix .. 'failed_attempts:' .. job.id, -MAX_ERRORS, -1)
end

-- A body with an empty payload; false if it cannot be read.
local function strip_payload(body)
  if #body < 2 then
    return false
  end
  local is_read, after = pcall(cmsgpack.unpack_one, body, 3 + struct.unpack('>H', body))
  return is_read and string.sub(body, 1, after) .. '\196\0'
end

-- Only the beginning of a body is read: a payload may have a megabyte.
local OPTIONS_BYTES = 65536
local function load_body_options(key)
  return strip_payload(redis.call('GETRANGE', key, 0, OPTIONS_BYTES - 1))
    or strip_payload(redis.call('GET', key) or '')
end

-- Bodies of claimed jobs. Payloads above the caller's `max_payload` are left out; the caller reads them apart.
local function limit_payloads(bodies)
  for i, body in ipairs(request.max_payload and bodies or {}) do
    if body and #body > request.max_payload then
      bodies[i] = strip_payload(body)
    end
  end
  return bodies
end

-- Bare rows have no payload, no result and no errors.
local function job_rows(jobs, is_bare)
  local body_keys, ids, rows = {}, {}, {}
  for i, job in ipairs(jobs) do
    body_keys[i], ids[i] = body_key(job.header[SEQ]), job.id
  end
  local bodies = is_bare and {} or fetch('MGET', body_keys)
  local unstarted = fetch('HMGET', ids, prefix .. 'unstarted')
  for i, job in ipairs(jobs) do
    local header = job.header
    local ends_at = header[STATE] == 'running'
      and (job.lease_expires_at or redis.call('ZSCORE', prefix .. 'leases:' .. header[WORKER], member_of_job(job)))
    local errors = not is_bare and header[ERRORS] > 0 and last_errors(job)
    local packed, body = job.packed, bodies[i]
    if is_bare then
      body = load_body_options(body_keys[i])
      if header[RESULT] then
        header[RESULT] = false
        packed = pack_header(header)
      end
    end
    rows[i] = {job.id, packed, body, ends_at and tonumber(ends_at), errors, tonumber(unstarted[i] or 0)}
  end
  return rows
end

-- The fence: why this worker does not hold the lease of this attempt; false if it does.
local function lease_refusal(job, attempt, worker)
  if not job then
    return 'gone'
  end
  local header = job.header
  if header[ATTEMPT] ~= attempt then
    return 'other attempt'
  end
  if header[STATE] ~= 'running' then
    return 'other state'
  end
  return header[WORKER] ~= worker and 'other worker'
end

-- Running jobs of a worker that were asked to stop, with the reasons. Cancel requests are few: each lasts only while
-- its job runs.
local function pending_cancels(worker)
  local cancels = {}
  if redis.call('HLEN', prefix .. 'cancel_requests') == 0 then
    return cancels
  end
  local requests = redis.call('HGETALL', prefix .. 'cancel_requests')
  for i = 1, #requests, 2 do
    local job = load_job(requests[i])
    if job and job.header[STATE] == 'running' and job.header[WORKER] == worker then
      cancels[#cancels + 1] = {requests[i], requests[i + 1]}
    end
  end
  table.sort(cancels, function(left, right) return left[1] < right[1] end)
  return cancels
end

-- Every body begins with the length of its job's id and the id.
local function read_job_id(seq)
  local front = redis.call('GETRANGE', body_key(seq), 0, 1023)
  if #front < 2 then
    return
  end
  return string.sub(front, 3, 2 + struct.unpack('>H', front))
end
