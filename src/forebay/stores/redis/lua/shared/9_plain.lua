-- Plain jobs: first attempts of jobs without unique key, deadline, expiry, gate, failures and wishes. Nearly
-- all jobs are, and then how one stands is a string, which can be compared and replaced without unpacking its
-- head. What is not plain, or was unpacked in this call already, takes the long way, in the same script.
-- Loops look for nothing outside of themselves: a server takes its time for that.

-- As MessagePack, '\194' is `false`: nothing from GATE to REASON; no failures, crashes and errors.
local usual = string.rep('\194', 9) .. '\0\0\0'
-- How a plain job stands that is pending for the first time: the state as text of seven bytes, and no attempt.
local fresh_standing = '\167pending\0' .. string.rep('\194', 4) .. usual .. '\194'
local at_now = cmsgpack.pack(now)
local leases_here = prefix .. 'leases:' .. ask.worker
local shapes = {}  -- the first part of a head -> what it says; false for one that is damaged

local function shape_of(alike)
  if shapes[alike] == nil then
    local is_whole, queue, task, _, lease_ms = pcall(cmsgpack.unpack, alike)
    shapes[alike] = is_whole and {
      queue = queue,
      gate = 'task:' .. task,
      lease_ms = lease_ms,
      final = final_key(queue, 'completed'),
      jobs = 0,
    }
  end
  return shapes[alike]
end

local function count_plain(from, to)
  for _, shape in pairs(shapes) do
    if shape and shape.jobs > 0 then
      count(shape.queue, from, -shape.jobs)
      count(shape.queue, to, shape.jobs)
      shape.jobs = 0
    end
  end
end

local function list_in(lists, key)
  if not lists[key] then
    lists[key] = {}
  end
  return lists[key]
end

-- How a job will stand that stands like this now, but for its result; false if it is not a plain one that
-- this worker holds. The times of its start and of its last change are nine bytes each.
local function completed_from(standing)
  local before = cmsgpack.pack('running', 1, ask.worker)
  if string.sub(standing, 1, #before) ~= before
    or string.sub(standing, #before + 19) ~= '\194' .. usual .. '\194' then
    return false
  end
  local started_at = string.sub(standing, #before + 1, #before + 9)
  return cmsgpack.pack('completed', 1, ask.worker) .. started_at .. at_now .. at_now .. usual
end

-- Complete what is plain of so many first attempts, whose ids and results are the first arguments; answers
-- the numbers of the others. What it means for jobs that depend on them is left to the caller.
local function complete_plainly(most)
  local byte, sub = string.byte, string.sub
  local packs, opened_jobs, written, over = stored, loaded, heads, list_in(removals, leases_here)
  local others, at, completed = {}, #heads, {}
  for number = 1, most do
    local id = ARGV[2 * number]
    local packed = packs[id]
    local shape, after
    if packed and opened_jobs[id] == nil then
      local high, low, own = byte(packed, 1, 3)
      local own_at = own and 4 + 256 * high + low
      local standing_at = own and own_at + own
      local standing = own and sub(packed, standing_at) or ''
      after = completed[standing]
      if after == nil then
        after = completed_from(standing)
        completed[standing] = after
      end
      shape = after and shape_of(sub(packed, 4, own_at - 1))
      if shape then
        local head = sub(packed, 1, standing_at - 1) .. after .. ARGV[2 * number + 1]
        packs[id], written[at + 1], written[at + 2] = head, id, head
        at = at + 2
        over[#over + 1] = sub(packed, own_at + 1, own_at + 13) .. ':' .. id
        add_later(shape.final, now, id)
        shape.jobs = shape.jobs + 1
      end
    end
    if not shape then
      others[#others + 1] = number
    end
  end
  count_plain('running', 'completed')
  return others
end

-- Give this worker leases on up to `most` jobs of one order, one after the other, as long as they are plain
-- ones that may pass; answers how many. `claimed` are lists of ids, heads, keys of bodies and ends of leases. `fits`,
-- if there are limits to be asked, says whether a job may start, and then it has.
local function start_plainly(order, most, lease_ms, passes, claimed, fits)
  local byte, sub, match = string.byte, string.sub, string.match
  local packs, opened_jobs, written, members = stored, loaded, heads, order.members
  local over, begun = list_in(removals, order.key), list_in(additions, leases_here)
  local ids, packed_heads, body_keys, ends = unpack(claimed)
  local fresh, front, back = fresh_standing, string.sub(fresh_standing, 1, 11), string.sub(fresh_standing, 13)
  -- Between them the time of the last change, which is nothing but for a job that was blocked.
  local back_at = #front + 10
  local started = cmsgpack.pack('running', 1, ask.worker) .. at_now .. at_now .. '\194' .. usual .. '\194'
  local body, at, written_to, over_to, begun_to, ids_to = prefix .. 'body:', order.at, #written, #over, #begun, #ids
  local last, keys_here = math.min(at + most, #members + 1), order.body_keys or {}
  while at < last do
    local one = members[at]
    local id = sub(one, 15)
    local packed = opened_jobs[id] == nil and packs[id]
    local high, low, own = byte(packed or '', 1, 3)
    local own_at = own and 4 + 256 * high + low
    local standing_at = own and own_at + own
    local standing = own and sub(packed, standing_at)
    if not own or sub(packed, own_at + 1, own_at + 13) ~= sub(one, 1, 13) then
      break
    end
    if standing ~= fresh and (sub(standing, back_at) ~= back or sub(standing, 1, back_at - 10) ~= front) then
      break
    end
    local shape = shape_of(sub(packed, 4, own_at - 1))
    if not shape or (passes and not passes[shape.gate]) then
      break
    end
    local ends_at = now + (lease_ms[1] or shape.lease_ms or lease_ms[2])
    local body_key_here = keys_here[at] or body .. match(one, '[1-9]%d*')
    if fits and not fits(id, shape.gate, order, at, ends_at) then
      break
    end
    local head = sub(packed, 1, standing_at - 1) .. started
    packs[id], written[written_to + 1], written[written_to + 2] = head, id, head
    begun[begun_to + 1], begun[begun_to + 2] = ends_at, one
    written_to, over_to, begun_to, ids_to, at = written_to + 2, over_to + 1, begun_to + 2, ids_to + 1, at + 1
    over[over_to] = one
    ids[ids_to], packed_heads[ids_to], body_keys[ids_to], ends[ids_to] = id, head, body_key_here, ends_at
    shape.jobs = shape.jobs + 1
  end
  local taken = at - order.at
  order.at = at
  count_plain('pending', 'running')
  return taken
end
