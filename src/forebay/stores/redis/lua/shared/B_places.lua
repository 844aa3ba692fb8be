-- Places under limits of tasks and keys, in one hash: for each scope its crowd, which are the jobs that run there, and for
-- each of these jobs its scopes. So all places of a call are read and written by few commands, and no key is made and
-- removed with a job.
-- A place counts only together with a lease. To look at leases takes time, so that is done only where a crowd seems to be
-- too large: then whose lease has ended does not count, and who does not run any more is removed.
-- Tables are filled by number, and loops are written out: this is what each job under a limit pays for.
local C_IDS, C_SIZE, C_NEW, C_STARTED, C_LAPSED, C_ENDS_AT, C_IS_CHANGED = 1, 2, 3, 4, 5, 6, 7
local crowds = {}        -- scope -> ids, each between two zeros, and how many; the same of those that this script adds; how
                         -- many of the first have no lease any more; when the first lease ends, as far as that is known;
                         -- whether it is to be written. False for one in which nobody is
local changed_crowds = {} -- scopes whose crowds are to be written
local firsts = {}        -- scope -> field of the one job that this script starts there, where nobody was; most crowds
                         -- are that, and need no table
local first_ends = {}    -- when its lease ends
local first_scopes = {}  -- these scopes, and some where others have joined since
local left_places = {}   -- fields of jobs that have no place any more
local taken_places = {}  -- fields and values of jobs that were given some
local known_bodies = {}  -- key of a body -> body, of jobs that were looked at

-- A hash of few short fields is a list for the server, which is searched from end to end. One long value makes it a table.
local FILLER = string.rep('-', 65)

-- How options begin that say one key and nothing else: behind the id and the sign of a list of two a short text, whose
-- length is one byte or two. A parser takes longer, and makes tables.
local ONE_KEY = '^\146[\160-\191\217].?{"limit_keys":{"([^"\\]*)":"([^"\\]*)"}}'

-- A crowd as it is stored: one id needs no number before it.
local function crowd_from(packed)
  local size, listed_ids = string.match(packed, '^(%d+)(.*)$')
  return {listed_ids or packed, tonumber(size or 1), '', 0, 0, false, false}
end

-- Bring the crowds of these scopes.
local function bring_crowds(scopes)
  local known_crowds, missing, number = crowds, {}, 0
  for i = 1, #scopes do
    local scope = scopes[i]
    if known_crowds[scope] == nil then
      known_crowds[scope] = false
      number = number + 1
      missing[number] = scope
    end
  end
  local found = fetch('HMGET', missing, prefix .. 'places')
  for i = 1, number do
    if found[i] then
      known_crowds[missing[i]] = crowd_from(found[i])
    end
  end
end

-- The one job that was started where nobody was is a crowd like any other from now on.
local function crowd_with(scope, field)
  local crowd = {'', 0, field, 1, 0, first_ends[scope], true}
  crowds[scope], firsts[scope] = crowd, nil
  changed_crowds[#changed_crowds + 1] = scope
  return crowd
end

local function crowd_of(scope)
  if crowds[scope] == nil then
    bring_crowds({scope})
  end
  if firsts[scope] then
    return crowd_with(scope, firsts[scope])
  end
  crowds[scope] = crowds[scope] or {'', 0, '', 0, 0, false, false}
  return crowds[scope]
end

local function mark_crowd(scope, crowd)
  if not crowd[C_IS_CHANGED] then
    crowd[C_IS_CHANGED] = true
    changed_crowds[#changed_crowds + 1] = scope
  end
end

-- `field` is an id between two zeros, so it is not found in a longer one.
local function leave_crowd(scope, field)
  local crowd = crowd_of(scope)
  local listed_ids = crowd[C_IDS]
  local from, to = 1, #field
  if listed_ids ~= field then
    from, to = string.find(listed_ids, field, 1, true)
  end
  if from then
    crowd[C_IDS] = string.sub(listed_ids, 1, from - 1) .. string.sub(listed_ids, to + 1)
    crowd[C_SIZE] = crowd[C_SIZE] - 1
    mark_crowd(scope, crowd)
  end
end

-- What runs in the scope of a gauge, as far as it was looked at.
local function running_under(gauge)
  local crowd = gauge.crowd
  return crowd and crowd[C_SIZE] - crowd[C_LAPSED] + crowd[C_STARTED] or gauge.running
end

-- Look at the leases of a crowd: which of them hold, and when the first of these ends.
local function look_closer(gauge)
  local crowd, scope = gauge.crowd, gauge.scope
  if not crowd or gauge.is_exact then
    return
  end
  gauge.is_exact = true
  for id in string.gmatch(crowd[C_IDS], '%z([^%z]+)') do
    local job = find(id)
    local head = job and job.head
    local ends_at = head and head[STATE] == 'running'
      and redis.call('ZSCORE', prefix .. 'leases:' .. head[WORKER], member(job))
    if not ends_at then
      local field = '\0' .. id .. '\0'
      leave_crowd(scope, field)
      left_places[#left_places + 1] = field  -- of other scopes it is found out when they seem to be full
    elseif tonumber(ends_at) > now then
      crowd[C_ENDS_AT] = math.min(crowd[C_ENDS_AT] or tonumber(ends_at), tonumber(ends_at))
    else
      crowd[C_LAPSED] = crowd[C_LAPSED] + 1
    end
  end
end

-- The scopes of keys with a limit that a body speaks of, and what its job costs.
local function key_scopes_in(body)
  local options, scopes = options_of(body, 'limit_keys', 'cost'), {}
  for kind, value in pairs(options.limit_keys or {}) do
    if limits['key:' .. kind] then
      scopes[#scopes + 1] = 'key:' .. kind .. ':' .. value
    end
  end
  table.sort(scopes)
  return scopes, options.cost or 1
end

-- The scopes of a job that not all jobs of its queue are in, those that have a limit; and what it costs.
local function narrow_scopes(task_scope, body)
  local scopes, cost = key_scopes_in(body)
  if limits[task_scope] then
    table.insert(scopes, 1, task_scope)
  end
  return scopes, cost
end

-- Bring the bodies of the next jobs of an order, which a claim will have to answer anyway, and the crowds of their keys.
-- By its place in the order, `scopes` has the scopes of a job that costs one token; `lone_scopes` the only one, and
-- `most_in` how many may run there, where nothing else is to be counted.
local function bring_bodies(order, most)
  local members, from = order.members, order.at
  if order.looked_at ~= members then
    order.looked_at, order.body_keys, order.scopes, order.lone_scopes, order.most_in = members, {}, {}, {}, {}
  end
  if order.body_keys[from] or not members[from] then
    return
  end
  local byte, match, wanted_keys, all, by_kind, bodies_here = string.byte, string.match, {}, {}, {}, known_bodies
  local keys_here, lone_scopes, most_in, number = order.body_keys, order.lone_scopes, order.most_in, 0
  local named, to = prefix .. 'body:', math.min(from + most - 1, #members)
  for at = from, to do
    local key = named .. match(members[at], '[1-9]%d*')
    wanted_keys[at - from + 1], keys_here[at] = key, key
  end
  local found = fetch('MGET', wanted_keys)
  for at = from, to do
    local body = found[at - from + 1]
    bodies_here[wanted_keys[at - from + 1]] = body
    local high, low = byte(body or '', 1, 2)
    local kind, value
    if low then
      kind, value = match(body, ONE_KEY, 3 + 256 * high + low)
    end
    local most_here = kind and by_kind[kind]
    if kind and most_here == nil then
      local limit = limits['key:' .. kind]
      most_here = limit and not limit[L_RATE] and limit[L_CONCURRENCY]
      by_kind[kind] = most_here
    end
    if most_here then
      local scope = 'key:' .. kind .. ':' .. value
      number = number + 1
      lone_scopes[at], most_in[at], all[number] = scope, most_here, scope
    elseif body then
      local scopes, cost = key_scopes_in(body)
      order.scopes[at] = cost == 1 and scopes
    end
  end
  bring_crowds(all)
end

local function join_crowd(scope, field, ends_at)
  local crowd = crowd_of(scope)
  crowd[C_NEW], crowd[C_STARTED] = crowd[C_NEW] .. field, crowd[C_STARTED] + 1
  if not crowd[C_ENDS_AT] or ends_at < crowd[C_ENDS_AT] then
    crowd[C_ENDS_AT] = ends_at
  end
  mark_crowd(scope, crowd)
end

local function take_places(id, ends_at, scopes, cost)
  local field = '\0' .. id .. '\0'
  for i = 1, #scopes do
    take_of(gauge_of(scopes[i]), 1, cost)
    join_crowd(scopes[i], field, ends_at)
  end
  if scopes[1] then
    taken_places[#taken_places + 1] = field
    taken_places[#taken_places + 1] = scopes[2] and cmsgpack.pack(scopes) or scopes[1]
  end
end

-- Whether a plain job may start under the limits of its task and its keys; then it has its places. One that costs more
-- or less than a token is left to whoever looks at what is spent, and so is one whose body is not at hand.
local function has_place(id, task_scope, order, at, ends_at)
  local scope, scopes = order.lone_scopes[at], order.scopes[at]
  if scope and not limits[task_scope] then
    local crowd, field, fields = crowds[scope], '\0' .. id .. '\0', taken_places
    if not crowd then
      local first, last = firsts[scope], #fields
      if not first then
        firsts[scope], first_ends[scope], first_scopes[#first_scopes + 1] = field, ends_at, scope
        fields[last + 1], fields[last + 2] = field, scope
        return true
      end
      crowd = crowd_with(scope, first)
    end
    if crowd[C_SIZE] - crowd[C_LAPSED] + crowd[C_STARTED] < order.most_in[at] then
      join_crowd(scope, field, ends_at)
      fields[#fields + 1], fields[#fields + 2] = field, scope
      return true
    end
  end
  if limits[task_scope] then
    -- Apart, as an `or` would leave one of several.
    scopes = scope and {task_scope, scope} or (scopes and {task_scope, unpack(scopes)})
  elseif scope then
    scopes = {scope}
  end
  if not scopes or full_among(scopes) then
    return false
  end
  take_places(id, ends_at, scopes, 1)
  return true
end

-- The bodies with these keys, as far as they are not at hand.
local function bodies_of(keys)
  local missing, found = {}, {}
  for _, key in ipairs(keys) do
    if not known_bodies[key] then
      missing[#missing + 1] = key
    end
  end
  for i, body in ipairs(fetch('MGET', missing)) do
    known_bodies[missing[i]] = body
  end
  for i, key in ipairs(keys) do
    found[i] = known_bodies[key]
  end
  return found
end

-- Jobs leave crowds of which this script knows nothing yet. Most were alone there.
local function leave_crowds(scopes, leaving)
  local found, known_crowds, removed = fetch('HMGET', scopes, prefix .. 'places'), crowds, left_places
  for i = 1, #scopes do
    local scope = scopes[i]
    if found[i] == leaving[i] then
      known_crowds[scope], removed[#removed + 1] = false, scope
    else
      known_crowds[scope] = known_crowds[scope] or (found[i] and crowd_from(found[i]))
      leave_crowd(scope, leaving[i])
    end
  end
end

-- Attempts at these jobs have ended; the queues in `wanted` are asked in this very call.
local function free_places(ids, wanted)
  if #ids == 0 or redis.call('EXISTS', prefix .. 'places') == 0 then
    return
  end
  local byte, fields, all, leaving, last = string.byte, {}, {}, {}, 0
  for i = 1, #ids do
    fields[i] = '\0' .. ids[i] .. '\0'
  end
  local found = fetch('HMGET', fields, prefix .. 'places')
  for i = 1, #ids do
    local packed = found[i]
    -- One scope as it is, several as a list.
    if packed and byte(packed) < 128 then
      last = last + 1
      all[last], leaving[last] = packed, fields[i]
    elseif packed then
      for _, scope in ipairs(cmsgpack.unpack(packed)) do
        last = last + 1
        all[last], leaving[last] = scope, fields[i]
      end
    end
  end
  left_places = fields
  leave_crowds(all, leaving)
  for _, queue in ipairs(redis.call('SMEMBERS', prefix .. 'closed_queues')) do
    for _, scope in ipairs(all) do
      local is_opened = redis.call('ZADD', prefix .. 'closed:' .. queue, 'XX', 'CH', 0, scope) == 1
      has_news = has_news or (is_opened and not wanted[queue])  -- whoever asks that queue should look
    end
  end
end

-- Write who has a place. A job that has ended may have begun again. Where nobody has one, nothing is kept: plain exchanges
-- see by that key that they need not look.
local function write_crowds()
  local fields, removed, alone, last = taken_places, left_places, firsts, #taken_places
  for i = 1, #first_scopes do
    local scope = first_scopes[i]
    local field = alone[scope]
    if field then
      fields[last + 1], fields[last + 2] = scope, field
      last, alone[scope] = last + 2, nil
    end
  end
  for i = 1, #changed_crowds do
    local scope = changed_crowds[i]
    local crowd = crowds[scope]
    local size, listed_ids = crowd[C_SIZE] + crowd[C_STARTED], crowd[C_IDS] .. crowd[C_NEW]
    if size > 0 then
      fields[#fields + 1] = scope
      fields[#fields + 1] = size > 1 and string.format('%d', size) .. listed_ids or listed_ids
    else
      removed[#removed + 1] = scope
    end
  end
  if #removed > 0 then
    send('HDEL', prefix .. 'places', removed)
  end
  if #fields > 0 then
    fields[#fields + 1], fields[#fields + 2] = '', FILLER
    send('HSET', prefix .. 'places', fields)
  elseif #removed > 0 and redis.call('HLEN', prefix .. 'places') <= 1 then
    redis.call('DEL', prefix .. 'places')
  end
end
