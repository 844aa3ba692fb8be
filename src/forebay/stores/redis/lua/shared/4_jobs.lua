-- Jobs as a script changes them. Nothing is written before `flush`, so a refusal leaves no trace, and few commands
-- write the changes of many jobs.
-- To change a job: remove its index entries, change its header, add its index entries.
local packed_headers = {}  -- id -> packed header; false if there is none
local loaded_jobs = {}  -- id -> job; false if there is none
local header_writes = {}  -- id, packed header, ...
local additions = {}  -- sorted set -> score, member, ...
local removals = {}  -- sorted set -> member, ...
local count_changes = {}  -- "queue state" -> change
local body_writes = {}  -- key, body, ...
local block_changes = {}  -- block of seqs -> change
local unique_changes = {}  -- queue -> unique key -> id, or false for a freed key
local idempotency_changes = {}  -- queue -> key -> {id, expiry}
local queue_cache = {}  -- name -> queue; false if there is none
local new_queues = {}  -- names of queues to write
local lane_changes = {}  -- queue -> lane -> whether jobs were added
local cancel_changes = {}  -- id -> reason; false to remove the request
local new_lease_holders = {}  -- workers that were given leases
local new_events = {}  -- events to write
local removed_jobs = {}  -- jobs to delete
local deferred_writes = {}  -- functions that write the rest
local new_parents = {}  -- new child -> position, failure policy and parent id, ...
local new_single_parents = {}  -- the same for children with one parent: id, failure policy and parent id, ...
local new_children = {}  -- parent -> state and member of an edge, ...; the member alone for one open edge
local new_dependency_count = 0  -- number of new edges
local unmet_changes = {}  -- id -> number of edges that block the job
local outbox_entries = {}  -- packed entries of the outbox
local enqueue_buckets = {}  -- scope -> token bucket of an enqueue rate
local needs_wakeup = false
local has_outbox_entries = false
local has_any_dependencies
local flush

-- The state of an edge is its score in the set of its parent, so the edges that an event concerns are a range.
local OPEN, HELD, FAILED, MET = 0, 1, 2, 3

-- Whether any job waits for another one, by an edge or in a sequence; read once in a script.
local function has_dependencies()
  if has_any_dependencies == nil then
    has_any_dependencies = redis.call('EXISTS', prefix .. 'dependency_count', prefix .. 'job_sequence') > 0
  end
  return has_any_dependencies
end

-- Whether jobs depend on this one, or it is in a sequence; false for most jobs.
local function has_dependants(id)
  return new_children[id] or (has_dependencies() and (
    redis.call('EXISTS', prefix .. 'children:' .. id) == 1 or redis.call('HEXISTS', prefix .. 'job_sequence', id) == 1
  ))
end

-- Add an outbox entry {id, event} if the job has dependants. Jobs that completed together share one entry, with a list
-- of ids.
local function add_outbox_entry(id, event)
  if has_dependants(id) then
    outbox_entries[#outbox_entries + 1] = cmsgpack.pack({id, event})
  end
end

-- Member of an edge in the set of its parent: ordered by child, then by position.
local function edge_member(id, number)
  return id .. '\0' .. string.format('%05d', number)
end

-- Load the packed headers of these jobs.
local function prefetch_headers(ids)
  local missing = {}
  for _, id in ipairs(ids) do
    if packed_headers[id] == nil then
      packed_headers[id] = false
      missing[#missing + 1] = id
    end
  end
  local stored = fetch('HMGET', missing, prefix .. 'headers')
  for i, id in ipairs(missing) do
    packed_headers[id] = stored[i]
  end
end

local function load_job(id)
  if loaded_jobs[id] == nil then
    if packed_headers[id] == nil then
      packed_headers[id] = redis.call('HGET', prefix .. 'headers', id)
    end
    loaded_jobs[id] = false
    -- A damaged header counts as a missing job: it must not block all others.
    local is_valid, header = pcall(unpack_header, packed_headers[id])
    if is_valid and header[SEQ] then
      loaded_jobs[id] = {id = id, header = header, packed = packed_headers[id]}
    end
  end
  return loaded_jobs[id]
end

local function load_jobs(ids)
  prefetch_headers(ids)
  for _, id in ipairs(ids) do
    load_job(id)
  end
end

local function load_queue(name)
  if queue_cache[name] == nil then
    local packed = redis.call('HGET', prefix .. 'queues', name)
    queue_cache[name] = packed and cmsgpack.unpack(packed) or false
  end
  return queue_cache[name]
end

-- Queue of this name, created with the settings of `request.default_queue` if there is none.
local function ensure_queue(name)
  if not load_queue(name) then
    local queue = {unpack(request.default_queue)}
    queue[Q_CREATED_AT], queue[Q_UPDATED_AT] = now, now
    queue_cache[name] = queue
    new_queues[name] = true
  end
  return queue_cache[name]
end

local function queue_names()
  local names = redis.call('HKEYS', prefix .. 'queues')
  table.sort(names)
  return names
end

local function add_count(name, change)
  count_changes[name] = (count_changes[name] or 0) + change
end

local function change_count(queue, state, change)
  add_count(queue .. ' ' .. state, change)
end

local function count_jobs(queue, ...)
  local total = 0
  for _, state in ipairs({...}) do
    local name = queue .. ' ' .. state
    total = total + (redis.call('HGET', prefix .. 'counts', name) or 0) + (count_changes[name] or 0)
  end
  return total
end

local function defer_add(key, score, entry)
  local list = additions[key]
  if not list then
    list = {}
    additions[key] = list
  end
  local last = #list
  list[last + 1], list[last + 2] = score, entry
end

local function defer_remove(key, entry)
  local list = removals[key]
  if not list then
    list = {}
    removals[key] = list
  end
  list[#list + 1] = entry
end

local function member_of_job(job)
  if not job.member then
    job.member = member_of(job.id, job.header[SEQ])
  end
  return job.member
end

-- Number of jobs of a queue completed since a time.
local function completed_since(queue, at)
  return redis.call('ZCOUNT', prefix .. 'completed:' .. queue, '(' .. string.format('%.0f', at), '+inf')
end

local function final_key(queue, state)
  return prefix .. state .. ':' .. queue
end

-- Index entries of a waiting job: sorted set, score, ...
local function index_entries(header)
  local queue, entries = header[QUEUE], nil
  if header[STATE] == 'pending' then
    entries = {ready_key(queue, header[LANE], header[AGE_CAPPED]), header[RANK]}
  else
    entries = {prefix .. (header[STATE] == 'blocked' and 'blocked:' or 'delayed:') .. queue, header[RUN_AT]}
  end
  if header[EXPIRES_AT] then
    entries[#entries + 1] = prefix .. 'expiry_times'
    entries[#entries + 1] = header[EXPIRES_AT]
  end
  if header[RESCORE_AT] then
    entries[#entries + 1] = prefix .. 'rescore_times'
    entries[#entries + 1] = header[RESCORE_AT]
  end
  return entries
end

-- Record that a job was added to its lane, or removed from it. Lanes of limits are recorded elsewhere. Lanes of
-- fairness keys tell which keys have jobs to run.
local function mark_lane(header, is_added)
  local queue, lane = header[QUEUE], header[LANE]
  if header[STATE] == 'pending' and lane and string.sub(lane, 1, 6) ~= 'limit:' then
    lane_changes[queue] = lane_changes[queue] or {}
    lane_changes[queue][lane] = is_added or lane_changes[queue][lane] or false
  end
end

-- Remove a job from every index.
local function unindex_job(job)
  if job.is_unindexed then
    return
  end
  if job.is_indexed then
    flush()
  end
  job.is_unindexed = true
  local header = job.header
  local queue, state = header[QUEUE], header[STATE]
  change_count(queue, state, -1)
  if state == 'running' then
    defer_remove(prefix .. 'leases:' .. header[WORKER], member_of_job(job))
    if header[CANCEL_REASON] then
      cancel_changes[job.id] = false
    end
    return
  end
  if FINAL[state] then
    defer_remove(final_key(queue, state), job.id)
    return
  end
  local entries = index_entries(header)
  for i = 1, #entries, 2 do
    defer_remove(entries[i], member_of_job(job))
  end
  mark_lane(header, false)
end

local function index_waiting(header, entries, member)
  needs_wakeup = true
  for i = 1, #entries, 2 do
    defer_add(entries[i], entries[i + 1], member)
  end
  mark_lane(header, true)
end

-- Write the changed header of a job whose index entries stay.
local function write_header(job)
  job.packed = pack_header(job.header)
  header_writes[#header_writes + 1] = job.id
  header_writes[#header_writes + 1] = job.packed
end

-- Add a job to the indexes that its header names.
local function index_job(job)
  local header = job.header
  local queue, state = header[QUEUE], header[STATE]
  change_count(queue, state, 1)
  if state == 'running' then
    defer_add(prefix .. 'leases:' .. header[WORKER], job.lease_expires_at, member_of_job(job))
    new_lease_holders[header[WORKER]] = true
    if header[CANCEL_REASON] then
      cancel_changes[job.id] = header[CANCEL_REASON]
    end
  elseif FINAL[state] then
    defer_add(final_key(queue, state), header[FINISHED_AT], job.id)
  else
    index_waiting(header, index_entries(header), member_of_job(job))
  end
  job.is_unindexed = false
  job.is_indexed = true
  write_header(job)
end

local function index_pending(job)
  job.header[STATE] = 'pending'
  set_rank(load_queue(job.header[QUEUE]), job.header)
  index_job(job)
end

-- Set a header to waiting, in this lane once the job is pending.
local function begin_waiting(header, is_blocked, lane)
  set_rank(load_queue(header[QUEUE]), header)
  header[STATE], header[LANE] = 'pending', lane
  if header[RUN_AT] > now or is_blocked then
    header[STATE], header[AGE_CAPPED], header[RESCORE_AT] = is_blocked and 'blocked' or 'scheduled', false, false
    header[LANE] = false
  end
end

-- Index a job that begins to wait.
local function index_new(job, is_blocked, lane)
  begin_waiting(job.header, is_blocked, lane)
  index_job(job)
end

local function unique_holder(queue, key)
  local change = unique_changes[queue] and unique_changes[queue][key]
  if change == nil then
    return redis.call('HGET', prefix .. 'unique:' .. queue, key)
  end
  return change
end

local function set_unique(queue, key, id)
  unique_changes[queue] = unique_changes[queue] or {}
  unique_changes[queue][key] = id
end

-- Only if this very job holds it.
local function free_unique(job)
  local queue, key = job.header[QUEUE], job.header[UNIQUE_KEY]
  if key and unique_holder(queue, key) == job.id then
    set_unique(queue, key, false)
  end
end

local function finish_job(job, state, reason, result)
  free_unique(job)
  unindex_job(job)
  local header = job.header
  header[STATE], header[REASON], header[RESULT] = state, reason, result
  header[LANE], header[RESCORE_AT], header[SWEPT_FROM] = false, false, false
  header[FINISHED_AT], header[UPDATED_AT] = now, now
  index_job(job)
  add_outbox_entry(job.id, state)
end

-- Delete a job with its unique key, history, progress and the edges to its parents.
local function remove_job(job)
  if job.header[STATE] ~= 'completed' then
    add_outbox_entry(job.id, 'deleted')
  end
  free_unique(job)
  unindex_job(job)
  removed_jobs[#removed_jobs + 1] = job
  loaded_jobs[job.id] = false
end

local function add_event(kind, job, actor, attempt, detail, changes)
  new_events[#new_events + 1] = {kind, now, job.id, job.header[QUEUE], attempt, actor, detail, changes}
end

-- Changes of an event as JSON: names with the values before and after; texts, numbers, or false for nothing.
local function changes_json(list)
  local parts = {}
  for _, change in ipairs(list) do
    local values = {}
    for i = 2, 3 do
      local value = change[i]
      values[i - 1] = type(value) == 'number' and string.format('%.0f', value)
        or value and cjson.encode(value) or 'null'
    end
    if values[1] ~= values[2] then
      parts[#parts + 1] = '"' .. change[1] .. '":[' .. values[1] .. ',' .. values[2] .. ']'
    end
  end
  return #parts > 0 and '{' .. table.concat(parts, ',') .. '}'
end
