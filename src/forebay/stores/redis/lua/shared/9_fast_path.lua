-- Fast path: first attempts of jobs without unique key, deadline, expiry, lane, failures and cancel request. Nearly all
-- jobs are of this kind. Then the state part of a header is a string that is compared and replaced without unpacking.
-- All other jobs, and jobs that this call has unpacked already, take the slow path in the same script.
-- Loops use locals alone: looking up outer variables takes a server time.

-- As MessagePack, '\194' is `false`: nothing from LANE to REASON; no failures, crashes and errors.
local default_tail = string.rep('\194', 9) .. '\0\0\0'
-- State part of a job that is pending for the first time: the state as text of seven bytes, and no attempt.
local new_job_state = '\167pending\0' .. string.rep('\194', 4) .. default_tail .. '\194'
local packed_now = cmsgpack.pack(now)
local lease_key = prefix .. 'leases:' .. request.worker
local shapes = {}  -- first part of a header -> its values; false for a damaged one

local function load_shape(common_part)
  if shapes[common_part] == nil then
    local is_valid, queue, task, _, lease_ms = pcall(cmsgpack.unpack, common_part)
    shapes[common_part] = is_valid and {
      queue = queue,
      lane = 'task:' .. task,
      lease_ms = lease_ms,
      completed_key = final_key(queue, 'completed'),
      jobs = 0,
    }
  end
  return shapes[common_part]
end

local function count_moved(from, to)
  for _, shape in pairs(shapes) do
    if shape and shape.jobs > 0 then
      change_count(shape.queue, from, -shape.jobs)
      change_count(shape.queue, to, shape.jobs)
      shape.jobs = 0
    end
  end
end

local function get_list(lists, key)
  if not lists[key] then
    lists[key] = {}
  end
  return lists[key]
end

-- State part after completion, without the result; false if this worker does not hold a job of the fast path. The start
-- time and the time of the last change take nine bytes each.
local function completed_state(state_part)
  local before = cmsgpack.pack('running', 1, request.worker)
  if string.sub(state_part, 1, #before) ~= before
    or string.sub(state_part, #before + 19) ~= '\194' .. default_tail .. '\194' then
    return false
  end
  local started_at = string.sub(state_part, #before + 1, #before + 9)
  return cmsgpack.pack('completed', 1, request.worker) .. started_at .. packed_now .. packed_now .. default_tail
end

-- Complete the first attempts whose ids and results are the first arguments, as far as they fit the fast path. Returns
-- the numbers of the others. The caller resolves dependants.
local function complete_fast(max_jobs)
  local byte, sub = string.byte, string.sub
  local packed_by_id, unpacked_jobs, writes = packed_headers, loaded_jobs, header_writes
  local removed = get_list(removals, lease_key)
  local slow_numbers, writes_end, completed_states = {}, #header_writes, {}
  for number = 1, max_jobs do
    local id = ARGV[2 * number]
    local packed = packed_by_id[id]
    local shape, new_state
    if packed and unpacked_jobs[id] == nil then
      local high, low, own_length = byte(packed, 1, 3)
      local own_at = own_length and 4 + 256 * high + low
      local state_at = own_length and own_at + own_length
      local state_part = own_length and sub(packed, state_at) or ''
      new_state = completed_states[state_part]
      if new_state == nil then
        new_state = completed_state(state_part)
        completed_states[state_part] = new_state
      end
      shape = new_state and load_shape(sub(packed, 4, own_at - 1))
      if shape then
        local header = sub(packed, 1, state_at - 1) .. new_state .. ARGV[2 * number + 1]
        packed_by_id[id], writes[writes_end + 1], writes[writes_end + 2] = header, id, header
        writes_end = writes_end + 2
        removed[#removed + 1] = sub(packed, own_at + 1, own_at + 13) .. ':' .. id
        defer_add(shape.completed_key, now, id)
        shape.jobs = shape.jobs + 1
      end
    end
    if not shape then
      slow_numbers[#slow_numbers + 1] = number
    end
  end
  count_moved('running', 'completed')
  return slow_numbers
end

-- Start up to `max_jobs` jobs of one order, one after the other, until one does not fit the fast path; returns their
-- number. `claimed` are lists of ids, headers, body keys and lease ends. With limits, `fits` says whether a job may
-- start, and takes its slots.
local function start_fast(order, max_jobs, lease_ms, allowed_lanes, claimed, fits)
  local byte, sub, match = string.byte, string.sub, string.match
  local packed_by_id, unpacked_jobs, writes, members = packed_headers, loaded_jobs, header_writes, order.members
  local removed, lease_entries = get_list(removals, order.key), get_list(additions, lease_key)
  local ids, headers, body_keys, lease_ends = unpack(claimed)
  local new_state, front, back = new_job_state, string.sub(new_job_state, 1, 11), string.sub(new_job_state, 13)
  -- Between them is the time of the last change, which is set only for a job that was blocked.
  local back_at = #front + 10
  local started = cmsgpack.pack('running', 1, request.worker) .. packed_now .. packed_now
    .. '\194' .. default_tail .. '\194'
  local body, at = prefix .. 'body:', order.at
  local writes_end, removed_end, leases_end, ids_end = #writes, #removed, #lease_entries, #ids
  local last, order_body_keys = math.min(at + max_jobs, #members + 1), order.body_keys or {}
  while at < last do
    local member = members[at]
    local id = sub(member, 15)
    local packed = unpacked_jobs[id] == nil and packed_by_id[id]
    local high, low, own_length = byte(packed or '', 1, 3)
    local own_at = own_length and 4 + 256 * high + low
    local state_at = own_length and own_at + own_length
    local state_part = own_length and sub(packed, state_at)
    if not own_length or sub(packed, own_at + 1, own_at + 13) ~= sub(member, 1, 13) then
      break
    end
    if state_part ~= new_state and (sub(state_part, back_at) ~= back or sub(state_part, 1, back_at - 10) ~= front) then
      break
    end
    local shape = load_shape(sub(packed, 4, own_at - 1))
    if not shape or (allowed_lanes and not allowed_lanes[shape.lane]) then
      break
    end
    local ends_at = now + (lease_ms[1] or shape.lease_ms or lease_ms[2])
    local job_body_key = order_body_keys[at] or body .. match(member, '[1-9]%d*')
    if fits and not fits(id, shape.lane, order, at, ends_at) then
      break
    end
    local header = sub(packed, 1, state_at - 1) .. started
    packed_by_id[id], writes[writes_end + 1], writes[writes_end + 2] = header, id, header
    lease_entries[leases_end + 1], lease_entries[leases_end + 2] = ends_at, member
    writes_end, removed_end, leases_end = writes_end + 2, removed_end + 1, leases_end + 2
    ids_end, at = ids_end + 1, at + 1
    removed[removed_end] = member
    ids[ids_end], headers[ids_end], body_keys[ids_end], lease_ends[ids_end] = id, header, job_body_key, ends_at
    shape.jobs = shape.jobs + 1
  end
  local started_jobs = at - order.at
  order.at = at
  count_moved('pending', 'running')
  return started_jobs
end
