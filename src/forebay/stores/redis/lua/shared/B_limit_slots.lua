-- Slots under limits of tasks and keys, in one hash: for each scope the list of its running jobs, and for each of these
-- jobs its scopes. So few commands read and write all slots of a call, and no key is created and removed with a job.
-- A slot counts only together with a lease. Checking leases takes time, so it is done only if a list seems to be full:
-- then jobs with an ended lease do not count, and jobs that do not run are removed.
-- Tables are filled by number, and loops are written out: each job under a limit pays for this.
local SLOT_IDS, SLOT_COUNT, SLOT_NEW_IDS, SLOT_NEW_COUNT = 1, 2, 3, 4
local SLOT_EXPIRED, SLOT_ENDS_AT, SLOT_IS_CHANGED = 5, 6, 7
-- scope -> slot list: ids, each between two zero bytes, and their number; the same for jobs that this script adds; how
-- many of the first have no lease any more; end of the first lease, if known; whether to write the list. False for an
-- empty one.
local slot_lists = {}
local changed_scopes = {}  -- scopes whose lists are to be written
-- scope -> field of the one job that this script starts in an empty scope. Most lists are that, and need no table.
local single_slots = {}
local single_slot_ends = {}  -- its lease end
local single_slot_scopes = {}  -- these scopes, and some that others have joined since
local released_fields = {}  -- fields of jobs that hold no slot any more
local taken_fields = {}  -- fields and values of jobs that were given slots
local body_cache = {}  -- body key -> body, of jobs that were checked

-- A server stores a hash of few short fields as a list, which it searches from end to end. One long value makes it a
-- table.
local FILLER = string.rep('-', 65)

-- Beginning of options with one key and nothing else: behind the id and the sign of a list of two, a short text with a
-- length of one or two bytes. A parser takes longer, and creates tables.
local SINGLE_KEY = '^\146[\160-\191\217].?{"limit_keys":{"([^"\\]*)":"([^"\\]*)"}}'

-- Parse a stored slot list: a single id has no number before it.
local function parse_slot_list(packed)
  local size, listed_ids = string.match(packed, '^(%d+)(.*)$')
  return {listed_ids or packed, tonumber(size or 1), '', 0, 0, false, false}
end

-- Load the slot lists of these scopes.
local function prefetch_slot_lists(scopes)
  local known_lists, missing, number = slot_lists, {}, 0
  for i = 1, #scopes do
    local scope = scopes[i]
    if known_lists[scope] == nil then
      known_lists[scope] = false
      number = number + 1
      missing[number] = scope
    end
  end
  local stored_lists = fetch('HMGET', missing, prefix .. 'limit_slots')
  for i = 1, number do
    if stored_lists[i] then
      known_lists[missing[i]] = parse_slot_list(stored_lists[i])
    end
  end
end

-- Turn the one job started in an empty scope into an ordinary slot list.
local function expand_single_slot(scope, field)
  local slot_list = {'', 0, field, 1, 0, single_slot_ends[scope], true}
  slot_lists[scope], single_slots[scope] = slot_list, nil
  changed_scopes[#changed_scopes + 1] = scope
  return slot_list
end

local function load_slot_list(scope)
  if slot_lists[scope] == nil then
    prefetch_slot_lists({scope})
  end
  if single_slots[scope] then
    return expand_single_slot(scope, single_slots[scope])
  end
  slot_lists[scope] = slot_lists[scope] or {'', 0, '', 0, 0, false, false}
  return slot_lists[scope]
end

local function mark_changed(scope, slot_list)
  if not slot_list[SLOT_IS_CHANGED] then
    slot_list[SLOT_IS_CHANGED] = true
    changed_scopes[#changed_scopes + 1] = scope
  end
end

-- `field` is an id between two zero bytes, so it is not found within a longer id.
local function remove_slot(scope, field)
  local slot_list = load_slot_list(scope)
  local listed_ids = slot_list[SLOT_IDS]
  local from, to = 1, #field
  if listed_ids ~= field then
    from, to = string.find(listed_ids, field, 1, true)
  end
  if from then
    slot_list[SLOT_IDS] = string.sub(listed_ids, 1, from - 1) .. string.sub(listed_ids, to + 1)
    slot_list[SLOT_COUNT] = slot_list[SLOT_COUNT] - 1
    mark_changed(scope, slot_list)
  end
end

-- Number of running jobs in the scope of a counter, as far as it was checked.
local function count_under(counter)
  local slot_list = counter.slots
  return slot_list and slot_list[SLOT_COUNT] - slot_list[SLOT_EXPIRED] + slot_list[SLOT_NEW_COUNT] or counter.running
end

-- Check the leases of a slot list: which of them hold, and when the first of these ends.
local function check_leases(counter)
  local slot_list, scope = counter.slots, counter.scope
  if not slot_list or counter.is_exact then
    return
  end
  counter.is_exact = true
  for id in string.gmatch(slot_list[SLOT_IDS], '%z([^%z]+)') do
    local job = load_job(id)
    local header = job and job.header
    local ends_at = header and header[STATE] == 'running'
      and redis.call('ZSCORE', prefix .. 'leases:' .. header[WORKER], member_of_job(job))
    if not ends_at then
      local field = '\0' .. id .. '\0'
      remove_slot(scope, field)
      released_fields[#released_fields + 1] = field  -- lists of other scopes are checked when they seem to be full
    elseif tonumber(ends_at) > now then
      slot_list[SLOT_ENDS_AT] = math.min(slot_list[SLOT_ENDS_AT] or tonumber(ends_at), tonumber(ends_at))
    else
      slot_list[SLOT_EXPIRED] = slot_list[SLOT_EXPIRED] + 1
    end
  end
end

-- Scopes of limited keys in a body, and the cost of its job.
local function key_scopes(body)
  local options, scopes = parse_options(body, 'limit_keys', 'cost'), {}
  for kind, value in pairs(options.limit_keys or {}) do
    if limit_cache['key:' .. kind] then
      scopes[#scopes + 1] = 'key:' .. kind .. ':' .. value
    end
  end
  table.sort(scopes)
  return scopes, options.cost or 1
end

-- Limited scopes of a job besides its queue's, and its cost.
local function narrow_scopes(task_scope, body)
  local scopes, cost = key_scopes(body)
  if limit_cache[task_scope] then
    table.insert(scopes, 1, task_scope)
  end
  return scopes, cost
end

-- Load the bodies of the next jobs of an order, which a claim returns anyway, and the slot lists of their keys. By
-- index in the order, `scopes` has the scopes of a job that costs one token. `single_scopes` has the only scope, and
-- `max_running` its limit, if nothing else counts.
local function prefetch_bodies(order, max_jobs)
  local members, from = order.members, order.at
  if order.prefetched ~= members then
    order.prefetched, order.body_keys, order.scopes, order.single_scopes, order.max_running = members, {}, {}, {}, {}
  end
  if order.body_keys[from] or not members[from] then
    return
  end
  local byte, match, wanted_keys, all_scopes, by_kind, bodies = string.byte, string.match, {}, {}, {}, body_cache
  local order_keys, single_scopes, max_running, number = order.body_keys, order.single_scopes, order.max_running, 0
  local key_prefix, to = prefix .. 'body:', math.min(from + max_jobs - 1, #members)
  for at = from, to do
    local key = key_prefix .. match(members[at], '[1-9]%d*')
    wanted_keys[at - from + 1], order_keys[at] = key, key
  end
  local stored_bodies = fetch('MGET', wanted_keys)
  for at = from, to do
    local body = stored_bodies[at - from + 1]
    bodies[wanted_keys[at - from + 1]] = body
    local high, low = byte(body or '', 1, 2)
    local kind, value
    if low then
      kind, value = match(body, SINGLE_KEY, 3 + 256 * high + low)
    end
    local max_here = kind and by_kind[kind]
    if kind and max_here == nil then
      local limit = limit_cache['key:' .. kind]
      max_here = limit and not limit[L_RATE] and limit[L_CONCURRENCY]
      by_kind[kind] = max_here
    end
    if max_here then
      local scope = 'key:' .. kind .. ':' .. value
      number = number + 1
      single_scopes[at], max_running[at], all_scopes[number] = scope, max_here, scope
    elseif body then
      local scopes, cost = key_scopes(body)
      order.scopes[at] = cost == 1 and scopes
    end
  end
  prefetch_slot_lists(all_scopes)
end

local function add_slot(scope, field, ends_at)
  local slot_list = load_slot_list(scope)
  slot_list[SLOT_NEW_IDS], slot_list[SLOT_NEW_COUNT] = slot_list[SLOT_NEW_IDS] .. field, slot_list[SLOT_NEW_COUNT] + 1
  if not slot_list[SLOT_ENDS_AT] or ends_at < slot_list[SLOT_ENDS_AT] then
    slot_list[SLOT_ENDS_AT] = ends_at
  end
  mark_changed(scope, slot_list)
end

local function take_slots(id, ends_at, scopes, cost)
  local field = '\0' .. id .. '\0'
  for i = 1, #scopes do
    spend(load_counter(scopes[i]), 1, cost)
    add_slot(scopes[i], field, ends_at)
  end
  if scopes[1] then
    taken_fields[#taken_fields + 1] = field
    taken_fields[#taken_fields + 1] = scopes[2] and cmsgpack.pack(scopes) or scopes[1]
  end
end

-- Whether a job of the fast path may start under the limits of its task and its keys; then it takes its slots. A job
-- that costs more or less than one token is left to the slow path, and so is one whose body is not loaded.
local function try_take_slot(id, task_scope, order, at, ends_at)
  local scope, scopes = order.single_scopes[at], order.scopes[at]
  if scope and not limit_cache[task_scope] then
    local slot_list, field, fields = slot_lists[scope], '\0' .. id .. '\0', taken_fields
    if not slot_list then
      local holder_field, last = single_slots[scope], #fields
      if not holder_field then
        single_slots[scope], single_slot_ends[scope] = field, ends_at
        single_slot_scopes[#single_slot_scopes + 1] = scope
        fields[last + 1], fields[last + 2] = field, scope
        return true
      end
      slot_list = expand_single_slot(scope, holder_field)
    end
    if slot_list[SLOT_COUNT] - slot_list[SLOT_EXPIRED] + slot_list[SLOT_NEW_COUNT] < order.max_running[at] then
      add_slot(scope, field, ends_at)
      fields[#fields + 1], fields[#fields + 2] = field, scope
      return true
    end
  end
  if limit_cache[task_scope] then
    -- Written out, as an `or` would drop all but one scope.
    scopes = scope and {task_scope, scope} or (scopes and {task_scope, unpack(scopes)})
  elseif scope then
    scopes = {scope}
  end
  if not scopes or first_full_scope(scopes) then
    return false
  end
  take_slots(id, ends_at, scopes, 1)
  return true
end

-- Load the bodies with these keys, unless they are cached.
local function load_bodies(keys)
  local missing, bodies = {}, {}
  for _, key in ipairs(keys) do
    if not body_cache[key] then
      missing[#missing + 1] = key
    end
  end
  for i, body in ipairs(fetch('MGET', missing)) do
    body_cache[missing[i]] = body
  end
  for i, key in ipairs(keys) do
    bodies[i] = body_cache[key]
  end
  return bodies
end

-- Remove jobs from slot lists that this script has not loaded. Most were alone in theirs.
local function remove_slots(scopes, leaving)
  local stored_lists, known_lists, removed = fetch('HMGET', scopes, prefix .. 'limit_slots'), slot_lists, released_fields
  for i = 1, #scopes do
    local scope = scopes[i]
    if stored_lists[i] == leaving[i] then
      known_lists[scope], removed[#removed + 1] = false, scope
    else
      known_lists[scope] = known_lists[scope] or (stored_lists[i] and parse_slot_list(stored_lists[i]))
      remove_slot(scope, leaving[i])
    end
  end
end

-- Free the slots of settled attempts; this very call claims from the queues in `claimed_queues`.
local function free_slots(ids, claimed_queues)
  if #ids == 0 or redis.call('EXISTS', prefix .. 'limit_slots') == 0 then
    return
  end
  local byte, fields, all_scopes, leaving, last = string.byte, {}, {}, {}, 0
  for i = 1, #ids do
    fields[i] = '\0' .. ids[i] .. '\0'
  end
  local stored_scopes = fetch('HMGET', fields, prefix .. 'limit_slots')
  for i = 1, #ids do
    local packed = stored_scopes[i]
    -- A single scope is stored as it is, several as a list.
    if packed and byte(packed) < 128 then
      last = last + 1
      all_scopes[last], leaving[last] = packed, fields[i]
    elseif packed then
      for _, scope in ipairs(cmsgpack.unpack(packed)) do
        last = last + 1
        all_scopes[last], leaving[last] = scope, fields[i]
      end
    end
  end
  released_fields = fields
  remove_slots(all_scopes, leaving)
  for _, queue in ipairs(redis.call('SMEMBERS', prefix .. 'limit_lane_queues')) do
    for _, scope in ipairs(all_scopes) do
      local is_opened = redis.call('ZADD', prefix .. 'limit_lanes:' .. queue, 'XX', 'CH', 0, scope) == 1
      needs_wakeup = needs_wakeup or (is_opened and not claimed_queues[queue])  -- workers of that queue should claim
    end
  end
end

-- Write the slots. A job that has ended may have begun again. An empty hash is deleted: the fast path sees by the
-- missing key that no slots are held.
local function write_slots()
  local fields, removed, singles, last = taken_fields, released_fields, single_slots, #taken_fields
  for i = 1, #single_slot_scopes do
    local scope = single_slot_scopes[i]
    local field = singles[scope]
    if field then
      fields[last + 1], fields[last + 2] = scope, field
      last, singles[scope] = last + 2, nil
    end
  end
  for i = 1, #changed_scopes do
    local scope = changed_scopes[i]
    local slot_list = slot_lists[scope]
    local size = slot_list[SLOT_COUNT] + slot_list[SLOT_NEW_COUNT]
    local listed_ids = slot_list[SLOT_IDS] .. slot_list[SLOT_NEW_IDS]
    if size > 0 then
      fields[#fields + 1] = scope
      fields[#fields + 1] = size > 1 and string.format('%d', size) .. listed_ids or listed_ids
    else
      removed[#removed + 1] = scope
    end
  end
  if #removed > 0 then
    call_in_slices('HDEL', prefix .. 'limit_slots', removed)
  end
  if #fields > 0 then
    fields[#fields + 1], fields[#fields + 2] = '', FILLER
    call_in_slices('HSET', prefix .. 'limit_slots', fields)
  elseif #removed > 0 and redis.call('HLEN', prefix .. 'limit_slots') <= 1 then
    redis.call('DEL', prefix .. 'limit_slots')
  end
end
