-- New jobs, asked for by clients or handed back by tasks.
-- ask.lots: what jobs that are alike have in common: queue, task, priority, delay_ms, run_at, deadline_at,
--   expires_at, lease_ms, extension_ms, whether its unique key is held until the start only, client, share, what the
--   failure of a near parent means, whether parents may be missing
-- ask.lot_of: the lot of each job;  ask.keyed: by number of the job: unique key, once key, once_ms,
--   whether the caller brought its id.  ARGV from `ask.first` on: id and body of each job.
-- ask.needs: by number of the job: {whether parents may be missing, {parent, what its failure means, when its id was
--   made}, ...}; a parent is an id, or how many jobs before it stands, and then the third is that number as asked for.
-- ask.near: for each job, or not there at all: how many jobs before it its one parent stands, or a list of that where it has
--   several, if all are of this batch and their failures mean the same; else 0. A graph is mostly made of such.
-- ask.sequences: by number of the job, the sequence that it comes last in.
local next_seq
local accepted = {}  -- of jobs that others may name by their place: true for a new one, else its receipt

local function take_seq()
  if not next_seq then
    next_seq = redis.call('INCRBY', prefix .. 'seq', #ask.lot_of) - #ask.lot_of
  end
  next_seq = next_seq + 1
  return next_seq
end

-- What holds for all jobs of a lot; the second value is why none of them can be stored.
local function look_at_lot(lot, is_follow_up)
  local queue = queue_of(lot[1])
  if not queue and not (is_follow_up or ask.create_queues) then
    return {'QueueNotFound', lot[1]}
  end
  queue = queue or ask.fresh
  local state = queue[Q_STATE]
  if not is_follow_up and (state == 'draining' or state == 'dropped') then
    return {'QueueClosed', lot[1], state}
  end
  local priority = lot[3] or queue[Q_DEFAULT_PRIORITY]
  if lot[3] and (priority < queue[Q_MIN_PRIORITY] or priority > queue[Q_MAX_PRIORITY]) then
    return {'InvalidJob', lot[1], priority, queue[Q_MIN_PRIORITY], queue[Q_MAX_PRIORITY]}
  end
  lot.due_at = math.max(now, lot[5] or now + lot[4])
  lot.max_length = not is_follow_up and lot.due_at <= now and queue[Q_MAX_LENGTH]
  lot.rated = not is_follow_up and (queue[Q_ENQUEUE_RATE] or queue[Q_CLIENT_RATE]) and queue
  lot.gate = lot[12] and 'fair:' .. lot[12]
  if lot.gate then
    note_shares()
  end
  lot.head = {
    lot[1], lot[2], priority, lot[8], lot[9], lot[10],
    0, now, lot.due_at, lot.due_at, 0,
    'pending', 0, false, false, now, false,
    false, false, false, lot[6], lot[7], false,
    false, false, false, 0, 0, 0, false,
  }
end

-- Return the refusal of a call in which an id that was made for a new job is another job's; nothing if all are free. One
-- command for all of them. A program that repeats ids must not overwrite a job; the caller makes other ids.
local function repeated_id()
  local ids = {}
  for number = 1, #ask.lot_of do
    local keys = ask.keyed[number]
    if not (keys and keys[4]) then
      ids[#ids + 1] = ARGV[ask.first + 2 * number - 2]
    end
  end
  local found = fetch('HMGET', ids, prefix .. 'heads')
  for i = 1, #ids do
    if found[i] then
      return {'RepeatedId', ids[i]}
    end
  end
end

-- Who has the id or a key of a new job; or why it is refused.
local function holder_of(lot, id, keys, on_conflict)
  if keys[4] and find(id) then
    if on_conflict == 'ignore' then
      return id
    end
    return nil, {'DuplicateId', id}
  end
  local holder = keys[1] and unique_holder(lot[1], keys[1])
  if not holder and keys[2] then
    local held = once[lot[1]] and once[lot[1]][keys[2]]
    if not held then
      local packed = redis.call('HGET', prefix .. 'once:' .. lot[1], keys[2])
      held = packed and cmsgpack.unpack(packed)
    end
    holder = held and held[2] > now and held[1]
  end
  if holder and on_conflict == 'raise' then
    return nil, {'DuplicateKey', lot[1], holder}
  end
  return holder
end

local function take_keys(lot, id, keys)
  if keys[1] then
    set_unique(lot[1], keys[1], id)
  end
  if keys[2] then
    once[lot[1]] = once[lot[1]] or {}
    once[lot[1]][keys[2]] = {id, now + keys[3]}
  end
end

-- How a new edge stands whose parent is in this state. One that ends its child is open still: that end is on the list.
local function starting_state(state, how)
  if state == 'completed' or (state ~= 'dead' and state ~= 'cancelled') then
    return state == 'completed' and MET or OPEN
  end
  return how == 'ignore' and MET or how == 'hold' and HELD or OPEN
end

-- The parents of a new job, one after the other: id, the state of the edge, its own state if it has ended, what its failure
-- means; or why not.
local function parents_of(number, lot, wanted)
  local found, blocking, at = {}, 0, 0
  local queue = queue_of(lot[1]) or ask.fresh
  for i = 2, #wanted do
    local id, how, made_at = wanted[i][1], wanted[i][2], wanted[i][3]
    local state
    if type(id) == 'number' then
      local receipt = accepted[number - id]
      if not receipt then
        return nil, {'MissingPlace', lot[2], made_at}
      end
      -- A new one is live, whatever it waits for.
      state = receipt == true and 'pending'
      id = state and ARGV[ask.first + 2 * (number - id) - 2] or receipt[1]
    end
    if not state then
      local job = find(id)
      state = job and job.head[STATE]
    end
    local keep_ms = queue[Q_KEEP_FINISHED_MS]
    local into = MET
    if state then
      into = starting_state(state, how)
    elseif not (wanted[1] and made_at and keep_ms > 0 and made_at + keep_ms <= now) then
      return nil, {'MissingParent', lot[2], id, wanted[1] and 1 or 0}
    end
    found[at + 1] = id
    found[at + 2] = into
    found[at + 3] = FINAL[state] and state or false
    found[at + 4] = how
    at = at + 4
    blocking = blocking + (into ~= MET and 1 or 0)
  end
  return found, nil, blocking
end

-- The same for parents of this batch. They are new and live, whatever they wait for, and what is answered is their ids alone;
-- where one is not, it is asked for.
local function parents_near(number, lot, near)
  local places = type(near) == 'table' and near or {near}
  local found, known, argv, first = {how = lot[13]}, accepted, ARGV, ask.first - 2
  for i = 1, #places do
    if known[number - places[i]] ~= true then
      local wanted = {lot[14]}
      for j = 1, #places do
        wanted[j + 1] = {places[j], lot[13], places[j]}
      end
      return parents_of(number, lot, wanted)
    end
    found[i] = argv[first + 2 * (number - places[i])]
  end
  return found, nil, #places
end

-- The first edge of a parent is its name alone if it is open: most have no other.
local function put_behind(parent, into, name)
  local entries = behind[parent]
  if not entries and into == OPEN then
    behind[parent] = name
  elseif not entries then
    behind[parent] = {into, name}
  elseif type(entries) == 'string' then
    behind[parent] = {OPEN, entries, into, name}
  else
    local last = #entries
    entries[last + 1], entries[last + 2] = into, name
  end
end

-- Edges to new parents of this batch, all of them open, whose failures mean the same.
local function add_near(id, parents)
  local number_of, text, needs, several = string.format, parents.how .. ' ', {}, #parents
  unmet[id] = several
  edge_count = edge_count + several
  if several == 1 then
    local last = #single_edges
    single_edges[last + 1], single_edges[last + 2] = id, text .. parents[1]
    put_behind(parents[1], OPEN, edge_name(id, 0))
    return
  end
  local tail, named, open = behind, id .. '\0', OPEN
  for i = 1, several do
    local parent, name = parents[i], named .. number_of('%05d', i - 1)
    needs[2 * i - 1], needs[2 * i] = i - 1, text .. parent
    if tail[parent] then
      put_behind(parent, open, name)
    else
      tail[parent] = name
    end
  end
  edges[id] = needs
end

local function add_edges(id, found, blocking)
  unmet[id] = blocking
  local several = #found / 4
  local needs = several > 1 and {}
  for at = 1, #found, 4 do
    local parent, into = found[at], found[at + 1]
    local number = (at - 1) / 4
    local text = found[at + 3] .. ' ' .. parent
    if needs then
      needs[2 * number + 1], needs[2 * number + 2] = number, text
    else
      local last = #single_edges
      single_edges[last + 1], single_edges[last + 2] = id, text
    end
    put_behind(parent, into, edge_name(id, number))
    if into == OPEN and found[at + 2] then
      list_aftermath(parent, found[at + 2])
    end
  end
  if needs then
    edges[id] = needs
  end
  edge_count = edge_count + several
end

-- Somebody else of this batch may ask for a job that has keys.
local function store_alone(lot, id, seq, keys, is_blocked)
  local job = {id = id, head = {unpack(lot.head)}, is_lifted = true}
  job.head[SEQ], job.head[UNIQUE_KEY] = seq, keys[1]
  take_keys(lot, id, keys)
  loaded[id] = job
  put_new(job, is_blocked, lot.gate)
  return job.head[STATE]
end

-- All others of a lot that are blocked, and all that are not, stand in the same places, and their heads differ in their
-- numbers alone.
local function store_alike(lot, id, seq, is_blocked)
  local kind = is_blocked and 'blocked' or 'free'
  local alike = lot[kind]
  if not alike then
    alike = {head = {unpack(lot.head)}}
    begin_waiting(alike.head, is_blocked, lot.gate)
    alike.places = places_of(alike.head)
    alike.before, alike.after = halves_of(alike.head)
    alike.name = lot[1] .. ' ' .. alike.head[STATE]
    lot[kind] = alike
  end
  local number, last = string.format('%013.0f', seq), #heads
  heads[last + 1], heads[last + 2] = id, alike.before .. number .. alike.after
  stand_waiting(alike.head, alike.places, number .. ':' .. id)
  tally(alike.name, 1)
  return alike.head[STATE]
end

local function store(lot, number, keys, found, blocking, sequence)
  local id, body = ARGV[ask.first + 2 * number - 2], ARGV[ask.first + 2 * number - 1]
  open_queue(lot[1])
  local seq = take_seq()
  local is_blocked = blocking > 0
  local state
  if found and found.how then
    add_near(id, found)
  elseif found then
    add_edges(id, found, blocking)
  end
  if sequence then
    unmet[id] = blocking
    join_sequence(sequence, id)
  end
  if keys then
    state = store_alone(lot, id, seq, keys, is_blocked)
  else
    state = store_alike(lot, id, seq, is_blocked)
  end
  local last = #bodies
  bodies[last + 1], bodies[last + 2] = body_key(seq), body
  local block = block_of(seq)
  blocks[block] = (blocks[block] or 0) + 1
  return {id, 1, state}
end

-- Why a queue with a length or with rates takes no new job of this lot now; nothing if it does, and then a token of each
-- rate is taken. Says the same as `room_after` and `Turnstile` in Python. A token has 1000 parts, so a bucket gains
-- `rate` parts in each millisecond. In one function, since a server makes each of them anew with every call.
local function refusal_of(lot, is_blocked)
  -- How many come at once: all of a batch that is accepted whole, of this queue and, if asked, of this client, or only
  -- those that run at once.
  local function wanted_with(of_client, to_run)
    local wanted = 0
    for number = 1, ask.atomic and #ask.lot_of or 0 do
      local other = ask.lots[ask.lot_of[number]]
      local is_later = (other[5] or now + other[4]) > now
        or (ask.needs and ask.needs[number]) or (ask.near and ask.near[number] ~= 0)
      if other[1] == lot[1] and (not of_client or other[11] == lot[11]) and not (to_run and is_later) then
        wanted = wanted + 1
      end
    end
    return math.max(1, wanted)
  end

  local length = lot.max_length and not is_blocked and count_of(lot[1], 'pending')
  if length and length >= lot.max_length then
    local wanted = wanted_with(false, true)
    local excess = wanted <= lot.max_length and length - lot.max_length + wanted
    local since = string.format('(%.0f', now - 60000)
    local done = redis.call('ZCOUNT', prefix .. 'completed:' .. lot[1], since, '+inf')
    return {'QueueFull', lot[1], lot.max_length, excess, done}
  end
  local queue, client = lot.rated or {}, lot[11] or ''
  local rates = {
    {'enqueue:' .. lot[1], queue[Q_ENQUEUE_RATE], queue[Q_ENQUEUE_BURST], false},
    {'client:' .. lot[1] .. ':' .. client, queue[Q_CLIENT_RATE], queue[Q_CLIENT_BURST], client},
  }
  for _, rate in ipairs(rates) do
    local scope, per_second, burst = rate[1], rate[2], rate[3]
    if per_second then
      local most = burst or math.min(2 * per_second, 1000000)
      local bucket = buckets[scope]
      if not bucket then
        local full_ms = math.floor(most * 1000 / per_second)
        local packed = redis.call('GET', prefix .. 'bucket:' .. scope)
        local parts, at = unpack(packed and cmsgpack.unpack(packed) or {most * 1000, now})
        parts = at > now + full_ms and most * 1000 or parts
        parts = math.min(most * 1000, parts + math.max(0, now - at) * per_second)
        bucket = {parts = parts, at_first = parts}
        buckets[scope] = bucket
      end
      if bucket.parts < 1000 then
        local wanted = wanted_with(rate[4])
        local left = ask.atomic and bucket.at_first or bucket.parts
        local wait = wanted <= most and math.max(0, math.ceil((wanted * 1000 - left) / per_second))
        return {'RateLimited', lot[1], rate[4], per_second, burst, wait}
      end
    end
  end
  for _, rate in ipairs(rates) do
    local bucket = rate[2] and buckets[rate[1]]
    if bucket then
      bucket.parts, bucket.is_taken = bucket.parts - 1000, true
    end
  end
end

local function accept_one(number, on_conflict, is_follow_up)
  local lot = ask.lots[ask.lot_of[number]]
  if not lot.is_looked_at then
    lot.is_looked_at = true
    lot.error = look_at_lot(lot, is_follow_up)
  end
  if lot.error then
    return nil, lot.error
  end
  local keys = ask.keyed[number]
  if keys then
    local holder, refusal = holder_of(lot, ARGV[ask.first + 2 * number - 2], keys, on_conflict)
    if refusal then
      return nil, refusal
    end
    if holder then
      local held = find(holder)
      return {holder, 0, held and held.head[STATE]}
    end
  end
  if keys and keys[4] and has_edges() then
    local still_listed = meet_later(ARGV[ask.first + 2 * number - 2])
    if still_listed then
      return nil, still_listed
    end
    leave_later(ARGV[ask.first + 2 * number - 2])
  end
  local found, refused, blocking = nil, nil, 0
  local near, needs = ask.near and ask.near[number], ask.needs and ask.needs[number]
  if near and near ~= 0 then
    found, refused, blocking = parents_near(number, lot, near)
  elseif needs then
    found, refused, blocking = parents_of(number, lot, needs)
  end
  if refused then
    return nil, refused
  end
  if ask.is_dear then
    redis.call('SET', prefix .. 'dear', 1)
  end
  local sequence = ask.sequences and ask.sequences[number]
  blocking = blocking + (sequence and is_begun(sequence) and 1 or 0)
  if lot.max_length or lot.rated then
    local refusal = refusal_of(lot, blocking > 0)
    if refusal then
      return nil, refusal
    end
  end
  return store(lot, number, keys, found, blocking, sequence)
end

-- Accept the job with this number; answers id, whether it is new, state; or nil and why not.
local function accept(number, on_conflict, is_follow_up)
  local receipt, refusal = accept_one(number, on_conflict, is_follow_up)
  if ask.needs or ask.near then
    accepted[number] = receipt and (receipt[2] == 1 or receipt)
  end
  return receipt, refusal
end
