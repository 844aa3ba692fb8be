#!lua
-- import_jobs: import jobs of another store with their history. Refused by the server when its memory is full.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: jobs, each with id, header, holds_unique_key, attempts, unstarted, events, progress, log_lines,
--   steps (name, argument number, ...), edges (parent, failure policy, state, ...), idempotency (key and expiry),
--   sequence, fairness_key, has_token_costs, body and result (argument numbers); default_queue (a queue without
--   settings). 2... these arguments
-- Returns for each job whether it is new. A job whose id exists stays as it is.
local EDGE_STATES = {open = OPEN, held = HELD, failed = FAILED, met = MET}
local answers = {}
local last_import_seq = redis.call('INCRBY', prefix .. 'seq', #request.jobs) - #request.jobs

local function save_history(export)
  local id = export.id
  deferred_writes[#deferred_writes + 1] = function()
    for _, attempt_row in ipairs(export.attempts) do
      redis.call('RPUSH', prefix .. 'failed_attempts:' .. id, cmsgpack.pack(attempt_row))
    end
    if export.unstarted then
      redis.call('HSET', prefix .. 'unstarted', id, export.unstarted)
    end
    if export.progress then
      redis.call('SET', prefix .. 'progress:' .. id, export.progress)
    end
    for _, line in ipairs(export.log_lines) do
      redis.call('RPUSH', prefix .. 'logs:' .. id, line)
    end
    for i = 1, #export.steps, 2 do
      redis.call('HSET', prefix .. 'steps:' .. id, export.steps[i], ARGV[export.steps[i + 1]])
    end
  end
  for _, event in ipairs(export.events) do
    new_events[#new_events + 1] = event
  end
end

-- States of the edges to the job's parents in this store, as `add_edges` takes them, and the number of blocking ones.
local function imported_edges(export)
  local edges, blocking = {}, 0
  for i = 1, #export.edges, 3 do
    local parent, on_failure, edge_state = export.edges[i], export.edges[i + 1], EDGE_STATES[export.edges[i + 2]]
    local job = load_job(parent)
    local state = job and job.header[STATE] or 'completed'
    if edge_state == OPEN then
      edge_state = starting_state(state, on_failure)
    end
    edges[#edges + 1] = parent
    edges[#edges + 1] = edge_state
    edges[#edges + 1] = FINAL[state] and state or false
    edges[#edges + 1] = on_failure
    blocking = blocking + ((edge_state == OPEN or edge_state == HELD) and 1 or 0)
  end
  return edges, blocking
end

local function take_idempotency_key(queue, id, entry)
  local packed = redis.call('HGET', prefix .. 'idempotency:' .. queue, entry[1])
  local current = (idempotency_changes[queue] and idempotency_changes[queue][entry[1]])
    or (packed and cmsgpack.unpack(packed))
  if entry[2] > now and not (current and current[2] > now) then
    idempotency_changes[queue] = idempotency_changes[queue] or {}
    idempotency_changes[queue][entry[1]] = {id, entry[2]}
  end
end

local function take_unique(job)
  local queue, key = job.header[QUEUE], job.header[UNIQUE_KEY]
  local holder = unique_holder(queue, key)
  if holder then
    job.header[UNIQUE_KEY] = false
    local detail = 'it came without its unique key ' .. key .. ', which ' .. holder .. ' holds'
    add_event('comment', job, false, false, detail, false)
  else
    set_unique(queue, key, job.id)
  end
end

local function store_waiting(job, export, blocking)
  local old_state, sequence = job.header[STATE], export.sequence
  if sequence then
    blocking = blocking + (has_live_jobs(sequence) and 1 or 0)
    join_sequence(sequence, job.id)
    unmet_changes[job.id] = blocking
  end
  if export.fairness_key then
    record_fairness_keys()
  end
  begin_waiting(job.header, blocking > 0, export.fairness_key and 'fairness:' .. export.fairness_key)
  if old_state == 'retrying' and job.header[STATE] == 'scheduled' then
    job.header[STATE] = old_state
  end
  index_job(job)
end

local function import_job(export)
  local id, header = export.id, export.header
  last_import_seq = last_import_seq + 1
  header[SEQ] = last_import_seq
  header[RESULT] = export.result and ARGV[export.result]
  local job = {id = id, header = header, is_unindexed = true}
  ensure_queue(header[QUEUE])
  local edges, blocking = imported_edges(export)
  loaded_jobs[id] = job
  body_writes[#body_writes + 1] = body_key(last_import_seq)
  body_writes[#body_writes + 1] = ARGV[export.body]
  local block = block_of(last_import_seq)
  block_changes[block] = (block_changes[block] or 0) + 1
  if export.has_token_costs then
    redis.call('SET', prefix .. 'has_token_costs', 1)
  end
  if export.idempotency then
    take_idempotency_key(header[QUEUE], id, export.idempotency)
  end
  if #edges > 0 then
    add_edges(id, edges, blocking)
  end
  save_history(export)
  if FINAL[header[STATE]] then
    index_job(job)
    add_outbox_entry(id, header[STATE])
  else
    if export.holds_unique_key then
      take_unique(job)
    end
    store_waiting(job, export, blocking)
  end
end

for number, export in ipairs(request.jobs) do
  local is_new = not load_job(export.id)
  if is_new and has_dependencies() then
    local pending = defer_marking_met(export.id)
    if pending then
      return {'refused', pending}
    end
    defer_leaving(export.id)
  end
  if is_new then
    import_job(export)
  end
  answers[number] = is_new and 1 or 0
end
return finish({'done', answers})
