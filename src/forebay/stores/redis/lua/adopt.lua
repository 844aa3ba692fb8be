#!lua
-- Take in jobs of another store with all that is known of them; refused by the server when its memory is full.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: jobs, each with id, head, takes_key, attempts, unstarted, events, progress, lines, steps (name and number of
--   an argument, ...), edges (parent, what its failure means, state, ...), once (key and its end), sequence, share,
--   is_dear, body and result (numbers of arguments); fresh (a queue that nobody has configured).  2... these arguments
-- Returns for each job whether it was new: one whose id is here already stays as it is.
local STATES = {open = OPEN, held = HELD, failed = FAILED, met = MET}
local answers = {}
local next_number = redis.call('INCRBY', prefix .. 'seq', #ask.jobs) - #ask.jobs

local function keep_history(brought)
  local id = brought.id
  noted[#noted + 1] = function()
    for _, bad in ipairs(brought.attempts) do
      redis.call('RPUSH', prefix .. 'attempts:' .. id, cmsgpack.pack(bad))
    end
    if brought.unstarted then
      redis.call('HSET', prefix .. 'unstarted', id, brought.unstarted)
    end
    if brought.progress then
      redis.call('SET', prefix .. 'notes:' .. id, brought.progress)
    end
    for _, line in ipairs(brought.lines) do
      redis.call('RPUSH', prefix .. 'lines:' .. id, line)
    end
    for i = 1, #brought.steps, 2 do
      redis.call('HSET', prefix .. 'steps:' .. id, brought.steps[i], ARGV[brought.steps[i + 1]])
    end
  end
  for _, event in ipairs(brought.events) do
    told[#told + 1] = event
  end
end

-- How the edges to its parents stand here, as `add_edges` takes them, and how many of them block it.
local function standing_edges(brought)
  local found, blocking = {}, 0
  for i = 1, #brought.edges, 3 do
    local parent, how, into = brought.edges[i], brought.edges[i + 1], STATES[brought.edges[i + 2]]
    local job = find(parent)
    local state = job and job.head[STATE] or 'completed'
    if into == OPEN then
      into = starting_state(state, how)
    end
    found[#found + 1] = parent
    found[#found + 1] = into
    found[#found + 1] = FINAL[state] and state or false
    found[#found + 1] = how
    blocking = blocking + ((into == OPEN or into == HELD) and 1 or 0)
  end
  return found, blocking
end

local function take_once(queue, id, held)
  local packed = redis.call('HGET', prefix .. 'once:' .. queue, held[1])
  local before = (once[queue] and once[queue][held[1]]) or (packed and cmsgpack.unpack(packed))
  if held[2] > now and not (before and before[2] > now) then
    once[queue] = once[queue] or {}
    once[queue][held[1]] = {id, held[2]}
  end
end

local function take_unique(job)
  local queue, key = job.head[QUEUE], job.head[UNIQUE_KEY]
  local holder = unique_holder(queue, key)
  if holder then
    job.head[UNIQUE_KEY] = false
    tell('note', job, false, false, 'it came without its unique key ' .. key .. ', which ' .. holder .. ' holds', false)
  else
    set_unique(queue, key, job.id)
  end
end

local function wait_here(job, brought, blocking)
  local was, sequence = job.head[STATE], brought.sequence
  if sequence then
    blocking = blocking + (is_begun(sequence) and 1 or 0)
    join_sequence(sequence, job.id)
    unmet[job.id] = blocking
  end
  if brought.share then
    note_shares()
  end
  begin_waiting(job.head, blocking > 0, brought.share and 'fair:' .. brought.share)
  if was == 'retrying' and job.head[STATE] == 'scheduled' then
    job.head[STATE] = was
  end
  put(job)
end

local function take_in(brought)
  local id, head = brought.id, brought.head
  next_number = next_number + 1
  head[SEQ] = next_number
  head[RESULT] = brought.result and ARGV[brought.result]
  local job = {id = id, head = head, is_lifted = true}
  open_queue(head[QUEUE])
  local found, blocking = standing_edges(brought)
  loaded[id] = job
  bodies[#bodies + 1] = body_key(next_number)
  bodies[#bodies + 1] = ARGV[brought.body]
  local block = block_of(next_number)
  blocks[block] = (blocks[block] or 0) + 1
  if brought.is_dear then
    redis.call('SET', prefix .. 'dear', 1)
  end
  if brought.once then
    take_once(head[QUEUE], id, brought.once)
  end
  if #found > 0 then
    add_edges(id, found, blocking)
  end
  keep_history(brought)
  if FINAL[head[STATE]] then
    put(job)
    list_aftermath(id, head[STATE])
  else
    if brought.takes_key then
      take_unique(job)
    end
    wait_here(job, brought, blocking)
  end
end

for number, brought in ipairs(ask.jobs) do
  local is_new = not find(brought.id)
  if is_new and has_edges() then
    local still_listed = meet_later(brought.id)
    if still_listed then
      return {'refused', still_listed}
    end
    leave_later(brought.id)
  end
  if is_new then
    take_in(brought)
  end
  answers[number] = is_new and 1 or 0
end
return finish({'done', answers})
