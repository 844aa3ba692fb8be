-- Insert of new jobs, from clients or as follow-ups of tasks.
-- request.groups: fields that the jobs of a group share: queue, task, priority, delay_ms, run_at, deadline_at,
-- expires_at, lease_ms, extension_ms, whether the unique key is held until the start only, client, fairness key,
-- failure policy of nearby parents, whether parents may be missing
-- request.group_of: group of each job; request.keyed: by number of the job: unique key, idempotency key,
-- idempotency_ttl_ms, whether the caller gave the id. ARGV from request.first on: id and body of each job.
-- request.dependencies: by number of the job: {whether parents may be missing, {parent, failure policy, creation time
-- of its id}, ...}. A parent is an id, or a distance to an earlier job of this batch; then the third value is the
-- distance as requested.
-- request.nearby: for each job, or absent: distance to its only parent, or a list of distances, if all parents are jobs
-- of this batch with one failure policy; else 0. Graphs consist mostly of such jobs.
-- request.sequences: by number of the job: sequence to which it is appended.
local next_seq
-- By number: true for a new job, else its insert result. Other jobs may refer to them by distance.
local batch_results = {}

local function allocate_seq()
  if not next_seq then
    next_seq = redis.call('INCRBY', prefix .. 'seq', #request.group_of) - #request.group_of
  end
  next_seq = next_seq + 1
  return next_seq
end

-- Compute the values that all jobs of a group share. Returns why none of them can be stored, if so.
local function prepare_group(group, is_follow_up)
  local queue = load_queue(group[1])
  if not queue and not (is_follow_up or request.create_queues) then
    return {'QueueNotFound', group[1]}
  end
  queue = queue or request.default_queue
  local state = queue[Q_STATE]
  if not is_follow_up and (state == 'draining' or state == 'dropped') then
    return {'QueueClosed', group[1], state}
  end
  local priority = group[3] or queue[Q_DEFAULT_PRIORITY]
  if group[3] and (priority < queue[Q_MIN_PRIORITY] or priority > queue[Q_MAX_PRIORITY]) then
    return {'InvalidJob', group[1], priority, queue[Q_MIN_PRIORITY], queue[Q_MAX_PRIORITY]}
  end
  group.due_at = math.max(now, group[5] or now + group[4])
  group.max_length = not is_follow_up and group.due_at <= now and queue[Q_MAX_LENGTH]
  group.rated_queue = not is_follow_up and (queue[Q_ENQUEUE_RATE] or queue[Q_CLIENT_RATE]) and queue
  group.lane = group[12] and 'fairness:' .. group[12]
  if group.lane then
    record_fairness_keys()
  end
  group.header = {
    group[1], group[2], priority, group[8], group[9], group[10],
    0, now, group.due_at, group.due_at, 0,
    'pending', 0, false, false, now, false,
    false, false, false, group[6], group[7], false,
    false, false, false, 0, 0, 0, false,
  }
end

-- Return the refusal of a call in which an id created for a new job belongs to another job; nothing if all are free.
-- One command checks all of them. A program that repeats ids must not overwrite a job; the caller creates other ids.
local function find_repeated_id()
  local ids = {}
  for number = 1, #request.group_of do
    local keys = request.keyed[number]
    if not (keys and keys[4]) then
      ids[#ids + 1] = ARGV[request.first + 2 * number - 2]
    end
  end
  local taken = fetch('HMGET', ids, prefix .. 'headers')
  for i = 1, #ids do
    if taken[i] then
      return {'RepeatedId', ids[i]}
    end
  end
end

-- Id of the job that has the id or a key of a new job; or the refusal.
local function find_key_holder(group, id, keys, on_conflict)
  if keys[4] and load_job(id) then
    if on_conflict == 'ignore' then
      return id
    end
    return nil, {'DuplicateId', id}
  end
  local holder = keys[1] and unique_holder(group[1], keys[1])
  if not holder and keys[2] then
    local entry = idempotency_changes[group[1]] and idempotency_changes[group[1]][keys[2]]
    if not entry then
      local packed = redis.call('HGET', prefix .. 'idempotency:' .. group[1], keys[2])
      entry = packed and cmsgpack.unpack(packed)
    end
    holder = entry and entry[2] > now and entry[1]
  end
  if holder and on_conflict == 'raise' then
    return nil, {'DuplicateKey', group[1], holder}
  end
  return holder
end

local function take_keys(group, id, keys)
  if keys[1] then
    set_unique(group[1], keys[1], id)
  end
  if keys[2] then
    idempotency_changes[group[1]] = idempotency_changes[group[1]] or {}
    idempotency_changes[group[1]][keys[2]] = {id, now + keys[3]}
  end
end

-- State of a new edge whose parent is in this state. An edge that will end its child is still open: the outbox has the
-- parent's end.
local function starting_state(state, on_failure)
  if state == 'completed' or (state ~= 'dead' and state ~= 'cancelled') then
    return state == 'completed' and MET or OPEN
  end
  return on_failure == 'ignore' and MET or on_failure == 'hold' and HELD or OPEN
end

-- Edges to the parents of a new job, flat: id, state of the edge, the parent's final state or false, failure policy; or
-- the refusal.
local function resolve_parents(number, group, dependencies)
  local edges, blocking, at = {}, 0, 0
  local queue = load_queue(group[1]) or request.default_queue
  for i = 2, #dependencies do
    local id, on_failure, detail = dependencies[i][1], dependencies[i][2], dependencies[i][3]
    local state
    if type(id) == 'number' then
      local insert_result = batch_results[number - id]
      if not insert_result then
        return nil, {'MissingBatchParent', group[2], detail}
      end
      -- A new parent is live, whatever it waits for.
      state = insert_result == true and 'pending'
      id = state and ARGV[request.first + 2 * (number - id) - 2] or insert_result[1]
    end
    if not state then
      local job = load_job(id)
      state = job and job.header[STATE]
    end
    local keep_ms = queue[Q_KEEP_FINISHED_MS]
    local edge_state = MET
    if state then
      edge_state = starting_state(state, on_failure)
    elseif not (dependencies[1] and detail and keep_ms > 0 and detail + keep_ms <= now) then
      return nil, {'MissingParent', group[2], id, dependencies[1] and 1 or 0}
    end
    edges[at + 1] = id
    edges[at + 2] = edge_state
    edges[at + 3] = FINAL[state] and state or false
    edges[at + 4] = on_failure
    at = at + 4
    blocking = blocking + (edge_state ~= MET and 1 or 0)
  end
  return edges, nil, blocking
end

-- The same for parents of this batch. New parents are live, whatever they wait for, and the result is their ids alone.
-- If one is not new, `resolve_parents` decides.
local function resolve_batch_parents(number, group, nearby)
  local distances = type(nearby) == 'table' and nearby or {nearby}
  local parents, results, argv, first = {on_failure = group[13]}, batch_results, ARGV, request.first - 2
  for i = 1, #distances do
    if results[number - distances[i]] ~= true then
      local dependencies = {group[14]}
      for j = 1, #distances do
        dependencies[j + 1] = {distances[j], group[13], distances[j]}
      end
      return resolve_parents(number, group, dependencies)
    end
    parents[i] = argv[first + 2 * (number - distances[i])]
  end
  return parents, nil, #distances
end

-- An open first edge of a parent is stored as its member alone: most parents have no other.
local function add_child_edge(parent, edge_state, name)
  local entries = new_children[parent]
  if not entries and edge_state == OPEN then
    new_children[parent] = name
  elseif not entries then
    new_children[parent] = {edge_state, name}
  elseif type(entries) == 'string' then
    new_children[parent] = {OPEN, entries, edge_state, name}
  else
    local last = #entries
    entries[last + 1], entries[last + 2] = edge_state, name
  end
end

-- Edges to new parents of this batch, all open and with one failure policy.
local function add_batch_edges(id, parents)
  local format, text_prefix, parent_pairs, parent_count = string.format, parents.on_failure .. ' ', {}, #parents
  unmet_changes[id] = parent_count
  new_dependency_count = new_dependency_count + parent_count
  if parent_count == 1 then
    local last = #new_single_parents
    new_single_parents[last + 1], new_single_parents[last + 2] = id, text_prefix .. parents[1]
    add_child_edge(parents[1], OPEN, edge_member(id, 0))
    return
  end
  local children, name_prefix, open = new_children, id .. '\0', OPEN
  for i = 1, parent_count do
    local parent, name = parents[i], name_prefix .. format('%05d', i - 1)
    parent_pairs[2 * i - 1], parent_pairs[2 * i] = i - 1, text_prefix .. parent
    if children[parent] then
      add_child_edge(parent, open, name)
    else
      children[parent] = name
    end
  end
  new_parents[id] = parent_pairs
end

local function add_edges(id, edges, blocking)
  unmet_changes[id] = blocking
  local parent_count = #edges / 4
  local parent_pairs = parent_count > 1 and {}
  for at = 1, #edges, 4 do
    local parent, edge_state = edges[at], edges[at + 1]
    local position = (at - 1) / 4
    local text = edges[at + 3] .. ' ' .. parent
    if parent_pairs then
      parent_pairs[2 * position + 1], parent_pairs[2 * position + 2] = position, text
    else
      local last = #new_single_parents
      new_single_parents[last + 1], new_single_parents[last + 2] = id, text
    end
    add_child_edge(parent, edge_state, edge_member(id, position))
    if edge_state == OPEN and edges[at + 2] then
      add_outbox_entry(parent, edges[at + 2])
    end
  end
  if parent_pairs then
    new_parents[id] = parent_pairs
  end
  new_dependency_count = new_dependency_count + parent_count
end

-- A job with keys gets an entry of its own, since a later job of this batch may collide with it.
local function store_keyed(group, id, seq, keys, is_blocked)
  local job = {id = id, header = {unpack(group.header)}, is_unindexed = true}
  job.header[SEQ], job.header[UNIQUE_KEY] = seq, keys[1]
  take_keys(group, id, keys)
  loaded_jobs[id] = job
  index_new(job, is_blocked, group.lane)
  return job.header[STATE]
end

-- All other blocked jobs of a group have the same index entries and the same header but for the seq; so do all that are
-- not blocked.
local function store_identical(group, id, seq, is_blocked)
  local variant = is_blocked and 'blocked' or 'free'
  local template = group[variant]
  if not template then
    template = {header = {unpack(group.header)}}
    begin_waiting(template.header, is_blocked, group.lane)
    template.entries = index_entries(template.header)
    template.before, template.after = split_header(template.header)
    template.count_name = group[1] .. ' ' .. template.header[STATE]
    group[variant] = template
  end
  local number, last = string.format('%013.0f', seq), #header_writes
  header_writes[last + 1], header_writes[last + 2] = id, template.before .. number .. template.after
  index_waiting(template.header, template.entries, number .. ':' .. id)
  add_count(template.count_name, 1)
  return template.header[STATE]
end

local function store_job(group, number, keys, edges, blocking, sequence)
  local id, body = ARGV[request.first + 2 * number - 2], ARGV[request.first + 2 * number - 1]
  ensure_queue(group[1])
  local seq = allocate_seq()
  local is_blocked = blocking > 0
  local state
  if edges and edges.on_failure then
    add_batch_edges(id, edges)
  elseif edges then
    add_edges(id, edges, blocking)
  end
  if sequence then
    unmet_changes[id] = blocking
    join_sequence(sequence, id)
  end
  if keys then
    state = store_keyed(group, id, seq, keys, is_blocked)
  else
    state = store_identical(group, id, seq, is_blocked)
  end
  local last = #body_writes
  body_writes[last + 1], body_writes[last + 2] = body_key(seq), body
  local block = block_of(seq)
  block_changes[block] = (block_changes[block] or 0) + 1
  return {id, 1, state}
end

-- Why a queue with a maximum length or with rates takes no new job of this group now. If it does, take a token of each
-- rate and return nothing. Same rules as `room_after` and `Turnstile` in Python. A token has 1000 parts, so a bucket
-- gains `rate` parts in each millisecond. One function, since a server creates each of them anew with every call.
local function backpressure_error(group, is_blocked)
  -- Number of jobs that come at once. For an atomic batch: its jobs of this queue and, if asked, of this client, or
  -- only those that run at once.
  local function batch_size(same_client, only_pending)
    local batch_jobs = 0
    for number = 1, request.atomic and #request.group_of or 0 do
      local other = request.groups[request.group_of[number]]
      local is_later = (other[5] or now + other[4]) > now
        or (request.dependencies and request.dependencies[number]) or (request.nearby and request.nearby[number] ~= 0)
      if other[1] == group[1] and (not same_client or other[11] == group[11]) and not (only_pending and is_later) then
        batch_jobs = batch_jobs + 1
      end
    end
    return math.max(1, batch_jobs)
  end

  local length = group.max_length and not is_blocked and count_jobs(group[1], 'pending')
  if length and length >= group.max_length then
    local batch_jobs = batch_size(false, true)
    local excess = batch_jobs <= group.max_length and length - group.max_length + batch_jobs
    local since = string.format('(%.0f', now - 60000)
    local completed = redis.call('ZCOUNT', prefix .. 'completed:' .. group[1], since, '+inf')
    return {'QueueFull', group[1], group.max_length, excess, completed}
  end
  local queue, client = group.rated_queue or {}, group[11] or ''
  local rates = {
    {'enqueue:' .. group[1], queue[Q_ENQUEUE_RATE], queue[Q_ENQUEUE_BURST], false},
    {'client:' .. group[1] .. ':' .. client, queue[Q_CLIENT_RATE], queue[Q_CLIENT_BURST], client},
  }
  for _, rate in ipairs(rates) do
    local scope, per_second, burst = rate[1], rate[2], rate[3]
    if per_second then
      local burst_size = burst or math.min(2 * per_second, 1000000)
      local bucket = enqueue_buckets[scope]
      if not bucket then
        local full_ms = math.floor(burst_size * 1000 / per_second)
        local packed = redis.call('GET', prefix .. 'enqueue_bucket:' .. scope)
        local parts, at = unpack(packed and cmsgpack.unpack(packed) or {burst_size * 1000, now})
        parts = at > now + full_ms and burst_size * 1000 or parts
        parts = math.min(burst_size * 1000, parts + math.max(0, now - at) * per_second)
        bucket = {parts = parts, initial_parts = parts}
        enqueue_buckets[scope] = bucket
      end
      if bucket.parts < 1000 then
        local batch_jobs = batch_size(rate[4])
        local left = request.atomic and bucket.initial_parts or bucket.parts
        local wait = batch_jobs <= burst_size and math.max(0, math.ceil((batch_jobs * 1000 - left) / per_second))
        return {'RateLimited', group[1], rate[4], per_second, burst, wait}
      end
    end
  end
  for _, rate in ipairs(rates) do
    local bucket = rate[2] and enqueue_buckets[rate[1]]
    if bucket then
      bucket.parts, bucket.is_charged = bucket.parts - 1000, true
    end
  end
end

local function check_and_store(number, on_conflict, is_follow_up)
  local group = request.groups[request.group_of[number]]
  if not group.is_prepared then
    group.is_prepared = true
    group.error = prepare_group(group, is_follow_up)
  end
  if group.error then
    return nil, group.error
  end
  local keys = request.keyed[number]
  if keys then
    local holder, refusal = find_key_holder(group, ARGV[request.first + 2 * number - 2], keys, on_conflict)
    if refusal then
      return nil, refusal
    end
    if holder then
      local holder_job = load_job(holder)
      return {holder, 0, holder_job and holder_job.header[STATE]}
    end
  end
  if keys and keys[4] and has_dependencies() then
    local pending = defer_marking_met(ARGV[request.first + 2 * number - 2])
    if pending then
      return nil, pending
    end
    defer_leaving(ARGV[request.first + 2 * number - 2])
  end
  local edges, dependency_error, blocking = nil, nil, 0
  local nearby = request.nearby and request.nearby[number]
  local dependencies = request.dependencies and request.dependencies[number]
  if nearby and nearby ~= 0 then
    edges, dependency_error, blocking = resolve_batch_parents(number, group, nearby)
  elseif dependencies then
    edges, dependency_error, blocking = resolve_parents(number, group, dependencies)
  end
  if dependency_error then
    return nil, dependency_error
  end
  if request.has_token_costs then
    redis.call('SET', prefix .. 'has_token_costs', 1)
  end
  local sequence = request.sequences and request.sequences[number]
  blocking = blocking + (sequence and has_live_jobs(sequence) and 1 or 0)
  if group.max_length or group.rated_queue then
    local refusal = backpressure_error(group, blocking > 0)
    if refusal then
      return nil, refusal
    end
  end
  return store_job(group, number, keys, edges, blocking, sequence)
end

-- Insert the job with this number; returns id, whether it is new, and its state; or nil and the refusal.
local function accept_job(number, on_conflict, is_follow_up)
  local insert_result, refusal = check_and_store(number, on_conflict, is_follow_up)
  if request.dependencies or request.nearby then
    batch_results[number] = insert_result and (insert_result[2] == 1 or insert_result)
  end
  return insert_result, refusal
end
