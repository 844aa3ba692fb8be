-- Plain jobs: first attempts of jobs without unique key, deadline, expiry, gate, failures and wishes. Nearly
-- all jobs are, and then how one stands is a string, which can be compared and replaced without unpacking its
-- head. What is not plain, or was unpacked in this call already, takes the long way, in the same script.
-- Loops look for nothing outside of themselves: a server takes its time for that.

-- As MessagePack, '\194' is `false`: nothing from GATE to REASON; no failures, crashes and errors.
local default_tail = string.rep('\194', 9) .. '\0\0\0'
-- How a plain job stands that is pending for the first time: the state as text of seven bytes, and no attempt.
local new_job_state = '\167pending\0' .. string.rep('\194', 4) .. default_tail .. '\194'
local packed_now = cmsgpack.pack(now)
local lease_key = prefix .. 'leases:' .. request.worker
local shapes = {}  -- the first part of a head -> what it says; false for one that is damaged

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

-- How a job will stand that stands like this now, but for its result; false if it is not a plain one that
-- this worker holds. The times of its start and of its last change are nine bytes each.
local function completed_state(state_part)
  local before = cmsgpack.pack('running', 1, request.worker)
  if string.sub(state_part, 1, #before) ~= before
    or string.sub(state_part, #before + 19) ~= '\194' .. default_tail .. '\194' then
    return false
  end
  local started_at = string.sub(state_part, #before + 1, #before + 9)
  return cmsgpack.pack('completed', 1, request.worker) .. started_at .. packed_now .. packed_now .. default_tail
end

-- Complete what is plain of so many first attempts, whose ids and results are the first arguments; answers
-- the numbers of the others. What it means for jobs that depend on them is left to the caller.
local function complete_fast(max_jobs)
  local byte, sub = string.byte, string.sub
  local packed_by_id, unpacked_jobs, writes, removed = packed_headers, loaded_jobs, header_writes, get_list(removals, lease_key)
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

-- Give this worker leases on up to `most` jobs of one order, one after the other, as long as they are plain
-- ones that may pass; answers how many. `claimed` are lists of ids, heads, keys of bodies and ends of leases. `fits`,
-- if there are limits to be asked, says whether a job may start, and then it has.
local function start_fast(order, max_jobs, lease_ms, allowed_lanes, claimed, fits)
  local byte, sub, match = string.byte, string.sub, string.match
  local packed_by_id, unpacked_jobs, writes, members = packed_headers, loaded_jobs, header_writes, order.members
  local removed, lease_entries = get_list(removals, order.key), get_list(additions, lease_key)
  local ids, headers, body_keys, lease_ends = unpack(claimed)
  local new_state, front, back = new_job_state, string.sub(new_job_state, 1, 11), string.sub(new_job_state, 13)
  -- Between them the time of the last change, which is nothing but for a job that was blocked.
  local back_at = #front + 10
  local started = cmsgpack.pack('running', 1, request.worker) .. packed_now .. packed_now .. '\194' .. default_tail .. '\194'
  local body, at, writes_end, removed_end, leases_end, ids_end = prefix .. 'body:', order.at, #writes, #removed, #lease_entries, #ids
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
    writes_end, removed_end, leases_end, ids_end, at = writes_end + 2, removed_end + 1, leases_end + 2, ids_end + 1, at + 1
    removed[removed_end] = member
    ids[ids_end], headers[ids_end], body_keys[ids_end], lease_ends[ids_end] = id, header, job_body_key, ends_at
    shape.jobs = shape.jobs + 1
  end
  local started_jobs = at - order.at
  order.at = at
  count_moved('pending', 'running')
  return started_jobs
end
