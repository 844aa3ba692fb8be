-- Places under limits of tasks and keys, in one hash: for each scope its crowd, which are the jobs that run there, and for
-- each of these jobs its scopes. So all places of a call are read and written by few commands, and no key is made and
-- removed with a job.
-- A place counts only together with a lease. To look at leases takes time, so that is done only where a crowd seems to be
-- too large: then whose lease has ended does not count, and who does not run any more is removed.
-- Tables are filled by number, and loops are written out: this is what each job under a limit pays for.
local SLOT_IDS, SLOT_COUNT, SLOT_NEW_IDS, SLOT_NEW_COUNT, SLOT_EXPIRED, SLOT_ENDS_AT, SLOT_IS_CHANGED = 1, 2, 3, 4, 5, 6, 7
local slot_lists = {}        -- scope -> ids, each between two zeros, and how many; the same of those that this script adds; how
                         -- many of the first have no lease any more; when the first lease ends, as far as that is known;
                         -- whether it is to be written. False for one in which nobody is
local changed_scopes = {} -- scopes whose crowds are to be written
local single_slots = {}        -- scope -> field of the one job that this script starts there, where nobody was; most crowds
                         -- are that, and need no table
local single_slot_ends = {}    -- when its lease ends
local single_slot_scopes = {}  -- these scopes, and some where others have joined since
local freed_fields = {}   -- fields of jobs that have no place any more
local taken_fields = {}  -- fields and values of jobs that were given some
local body_cache = {}  -- key of a body -> body, of jobs that were looked at

-- A hash of few short fields is a list for the server, which is searched from end to end. One long value makes it a table.
local FILLER = string.rep('-', 65)

-- How options begin that say one key and nothing else: behind the id and the sign of a list of two a short text, whose
-- length is one byte or two. A parser takes longer, and makes tables.
local SINGLE_KEY = '^\146[\160-\191\217].?{"limit_keys":{"([^"\\]*)":"([^"\\]*)"}}'

-- A crowd as it is stored: one id needs no number before it.
local function parse_slot_list(packed)
  local size, listed_ids = string.match(packed, '^(%d+)(.*)$')
  return {listed_ids or packed, tonumber(size or 1), '', 0, 0, false, false}
end

-- Bring the crowds of these scopes.
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
  local found = fetch('HMGET', missing, prefix .. 'limit_slots')
  for i = 1, number do
    if found[i] then
      known_lists[missing[i]] = parse_slot_list(found[i])
    end
  end
end

-- The one job that was started where nobody was is a crowd like any other from now on.
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

-- `field` is an id between two zeros, so it is not found in a longer one.
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

-- What runs in the scope of a gauge, as far as it was looked at.
local function count_under(counter)
  local slot_list = counter.slots
  return slot_list and slot_list[SLOT_COUNT] - slot_list[SLOT_EXPIRED] + slot_list[SLOT_NEW_COUNT] or counter.running
end

-- Look at the leases of a crowd: which of them hold, and when the first of these ends.
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
      freed_fields[#freed_fields + 1] = field  -- of other scopes it is found out when they seem to be full
    elseif tonumber(ends_at) > now then
      slot_list[SLOT_ENDS_AT] = math.min(slot_list[SLOT_ENDS_AT] or tonumber(ends_at), tonumber(ends_at))
    else
      slot_list[SLOT_EXPIRED] = slot_list[SLOT_EXPIRED] + 1
    end
  end
end

-- The scopes of keys with a limit that a body speaks of, and what its job costs.
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

-- The scopes of a job that not all jobs of its queue are in, those that have a limit; and what it costs.
local function narrow_scopes(task_scope, body)
  local scopes, cost = key_scopes(body)
  if limit_cache[task_scope] then
    table.insert(scopes, 1, task_scope)
  end
  return scopes, cost
end

-- Bring the bodies of the next jobs of an order, which a claim will have to answer anyway, and the crowds of their keys.
-- By its place in the order, `scopes` has the scopes of a job that costs one token; `lone_scopes` the only one, and
-- `most_in` how many may run there, where nothing else is to be counted.
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
  local found = fetch('MGET', wanted_keys)
  for at = from, to do
    local body = found[at - from + 1]
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

-- Whether a plain job may start under the limits of its task and its keys; then it has its places. One that costs more
-- or less than a token is left to whoever looks at what is spent, and so is one whose body is not at hand.
local function try_take_slot(id, task_scope, order, at, ends_at)
  local scope, scopes = order.single_scopes[at], order.scopes[at]
  if scope and not limit_cache[task_scope] then
    local slot_list, field, fields = slot_lists[scope], '\0' .. id .. '\0', taken_fields
    if not slot_list then
      local holder_field, last = single_slots[scope], #fields
      if not holder_field then
        single_slots[scope], single_slot_ends[scope], single_slot_scopes[#single_slot_scopes + 1] = field, ends_at, scope
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
    -- Apart, as an `or` would leave one of several.
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

-- The bodies with these keys, as far as they are not at hand.
local function load_bodies(keys)
  local missing, found = {}, {}
  for _, key in ipairs(keys) do
    if not body_cache[key] then
      missing[#missing + 1] = key
    end
  end
  for i, body in ipairs(fetch('MGET', missing)) do
    body_cache[missing[i]] = body
  end
  for i, key in ipairs(keys) do
    found[i] = body_cache[key]
  end
  return found
end

-- Jobs leave crowds of which this script knows nothing yet. Most were alone there.
local function remove_slots(scopes, leaving)
  local found, known_lists, removed = fetch('HMGET', scopes, prefix .. 'limit_slots'), slot_lists, freed_fields
  for i = 1, #scopes do
    local scope = scopes[i]
    if found[i] == leaving[i] then
      known_lists[scope], removed[#removed + 1] = false, scope
    else
      known_lists[scope] = known_lists[scope] or (found[i] and parse_slot_list(found[i]))
      remove_slot(scope, leaving[i])
    end
  end
end

-- Attempts at these jobs have ended; the queues in `wanted` are asked in this very call.
local function free_slots(ids, claimed_queues)
  if #ids == 0 or redis.call('EXISTS', prefix .. 'limit_slots') == 0 then
    return
  end
  local byte, fields, all_scopes, leaving, last = string.byte, {}, {}, {}, 0
  for i = 1, #ids do
    fields[i] = '\0' .. ids[i] .. '\0'
  end
  local found = fetch('HMGET', fields, prefix .. 'limit_slots')
  for i = 1, #ids do
    local packed = found[i]
    -- One scope as it is, several as a list.
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
  freed_fields = fields
  remove_slots(all_scopes, leaving)
  for _, queue in ipairs(redis.call('SMEMBERS', prefix .. 'limit_lane_queues')) do
    for _, scope in ipairs(all_scopes) do
      local is_opened = redis.call('ZADD', prefix .. 'limit_lanes:' .. queue, 'XX', 'CH', 0, scope) == 1
      needs_wakeup = needs_wakeup or (is_opened and not claimed_queues[queue])  -- whoever asks that queue should look
    end
  end
end

-- Write who has a place. A job that has ended may have begun again. Where nobody has one, nothing is kept: plain exchanges
-- see by that key that they need not look.
local function write_slots()
  local fields, removed, singles, last = taken_fields, freed_fields, single_slots, #taken_fields
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
    local size, listed_ids = slot_list[SLOT_COUNT] + slot_list[SLOT_NEW_COUNT], slot_list[SLOT_IDS] .. slot_list[SLOT_NEW_IDS]
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
