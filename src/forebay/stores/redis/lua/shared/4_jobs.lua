-- Jobs as a script changes them. Nothing is written before `flush`: until then a refusal leaves no trace,
-- and what many jobs have in common is written by few commands.
--
-- To change a job: lift it out of its places, change its head, put it back.
local stored = {}     -- id -> packed head; false for one that is not there
local loaded = {}     -- id -> job; false for one that is not there
local heads = {}      -- id, packed head, ...
local additions = {}  -- sorted set -> score, member, ...
local removals = {}   -- sorted set -> member, ...
local counted = {}    -- "queue state" -> change
local bodies = {}     -- key, body, ...
local blocks = {}     -- block of seqs -> change
local unique = {}     -- queue -> key -> id, or false for a key that was freed
local once = {}       -- queue -> key -> {id, until}
local queues = {}     -- name -> queue; false for one that is not there
local opened = {}     -- names of queues that are to be written
local gates = {}      -- queue -> gate -> whether jobs were put behind it
local wishes = {}     -- id -> reason; false for one that is over
local holders = {}    -- workers that were given leases
local told = {}       -- events
local gone = {}       -- jobs to be forgotten
local noted = {}      -- functions that keep notes
local edges = {}      -- new child -> number, what the failure of a parent means and its id, ...
local single_edges = {} -- the same for children with one parent: id, what its failure means and its id, ...
local behind = {}     -- its parent -> state and name of an edge, ...; or the name alone of one that is open
local edge_count = 0  -- how many these are
local unmet = {}      -- id -> how many edges block it
local aftermaths = {} -- packed lines of the list
local buckets = {}    -- scope -> what is left of a rate at which a queue takes jobs
local has_news = false
local has_listed = false
local are_edges_known
local flush

-- An edge's state is its score in the set of its parent, so that what the end of that one concerns is a range.
local OPEN, HELD, FAILED, MET = 0, 1, 2, 3

-- Whether any job waits for another one, by an edge or in a sequence; asked once in a script.
local function has_edges()
  if are_edges_known == nil then
    are_edges_known = redis.call('EXISTS', prefix .. 'edge_count', prefix .. 'sequence_of') > 0
  end
  return are_edges_known
end

-- Whether any job depends on this one, or comes after it in a sequence; none does on most.
local function is_awaited(id)
  return behind[id] or (has_edges() and (
    redis.call('EXISTS', prefix .. 'behind:' .. id) == 1 or redis.call('HEXISTS', prefix .. 'sequence_of', id) == 1
  ))
end

-- Remember to look at what depends on a job. A line of the list is {id, word}; jobs that have completed together are one
-- line, with a list of ids.
local function list_aftermath(id, word)
  if is_awaited(id) then
    aftermaths[#aftermaths + 1] = cmsgpack.pack({id, word})
  end
end

-- How an edge is called in the set of its parent: in the order of children, then of their parents' numbers.
local function edge_name(id, number)
  return id .. '\0' .. string.format('%05d', number)
end

-- Bring the heads of these jobs, packed.
local function bring(ids)
  local missing = {}
  for _, id in ipairs(ids) do
    if stored[id] == nil then
      stored[id] = false
      missing[#missing + 1] = id
    end
  end
  local found = fetch('HMGET', missing, prefix .. 'heads')
  for i, id in ipairs(missing) do
    stored[id] = found[i]
  end
end

local function find(id)
  if loaded[id] == nil then
    if stored[id] == nil then
      stored[id] = redis.call('HGET', prefix .. 'heads', id)
    end
    loaded[id] = false
    -- A damaged one is as good as gone: it must not hold up all others.
    local is_whole, head = pcall(unpacked, stored[id])
    if is_whole and head[SEQ] then
      loaded[id] = {id = id, head = head, packed = stored[id]}
    end
  end
  return loaded[id]
end

local function load(ids)
  bring(ids)
  for _, id in ipairs(ids) do
    find(id)
  end
end

local function queue_of(name)
  if queues[name] == nil then
    local found = redis.call('HGET', prefix .. 'queues', name)
    queues[name] = found and cmsgpack.unpack(found) or false
  end
  return queues[name]
end

-- The queue of this name, made with the settings of `ask.fresh` if there is none.
local function open_queue(name)
  if not queue_of(name) then
    local queue = {unpack(ask.fresh)}
    queue[Q_CREATED_AT], queue[Q_UPDATED_AT] = now, now
    queues[name] = queue
    opened[name] = true
  end
  return queues[name]
end

local function queue_names()
  local names = redis.call('HKEYS', prefix .. 'queues')
  table.sort(names)
  return names
end

local function tally(name, change)
  counted[name] = (counted[name] or 0) + change
end

local function count(queue, state, change)
  tally(queue .. ' ' .. state, change)
end

local function count_of(queue, ...)
  local total = 0
  for _, state in ipairs({...}) do
    local name = queue .. ' ' .. state
    total = total + (redis.call('HGET', prefix .. 'counts', name) or 0) + (counted[name] or 0)
  end
  return total
end

local function add_later(key, score, entry)
  local list = additions[key]
  if not list then
    list = {}
    additions[key] = list
  end
  local last = #list
  list[last + 1], list[last + 2] = score, entry
end

local function remove_later(key, entry)
  local list = removals[key]
  if not list then
    list = {}
    removals[key] = list
  end
  list[#list + 1] = entry
end

local function member(job)
  if not job.member then
    job.member = member_of(job.id, job.head[SEQ])
  end
  return job.member
end

-- How many jobs of a queue have completed since a time.
local function completed_since(queue, at)
  return redis.call('ZCOUNT', prefix .. 'completed:' .. queue, '(' .. string.format('%.0f', at), '+inf')
end

local function final_key(queue, state)
  return prefix .. state .. ':' .. queue
end

-- Where a waiting job stands: sorted set, score, ...
local function places_of(head)
  local queue, places = head[QUEUE], nil
  if head[STATE] == 'pending' then
    places = {ready_key(queue, head[GATE], head[CAPPED]), head[RANK]}
  else
    places = {prefix .. (head[STATE] == 'blocked' and 'blocked:' or 'due:') .. queue, head[RUN_AT]}
  end
  if head[EXPIRES_AT] then
    places[#places + 1] = prefix .. 'expiring'
    places[#places + 1] = head[EXPIRES_AT]
  end
  if head[RESCORE_AT] then
    places[#places + 1] = prefix .. 'rescoring'
    places[#places + 1] = head[RESCORE_AT]
  end
  return places
end

-- Whether a job was put behind its gate, or only taken from there. Gates of limits are kept elsewhere; those of shares
-- say who has something to run.
local function mark_gate(head, is_put)
  local queue, gate = head[QUEUE], head[GATE]
  if head[STATE] == 'pending' and gate and string.sub(gate, 1, 6) ~= 'limit:' then
    gates[queue] = gates[queue] or {}
    gates[queue][gate] = is_put or gates[queue][gate] or false
  end
end

-- Take a job out of every place where it stands.
local function lift(job)
  if job.is_lifted then
    return
  end
  if job.is_put then
    flush()
  end
  job.is_lifted = true
  local head = job.head
  local queue, state = head[QUEUE], head[STATE]
  count(queue, state, -1)
  if state == 'running' then
    remove_later(prefix .. 'leases:' .. head[WORKER], member(job))
    if head[CANCEL_REASON] then
      wishes[job.id] = false
    end
    return
  end
  if FINAL[state] then
    remove_later(final_key(queue, state), job.id)
    return
  end
  local places = places_of(head)
  for i = 1, #places, 2 do
    remove_later(places[i], member(job))
  end
  mark_gate(head, false)
end

local function stand_waiting(head, places, one)
  has_news = true
  for i = 1, #places, 2 do
    add_later(places[i], places[i + 1], one)
  end
  mark_gate(head, true)
end

-- Write what has changed in a job that stays where it is.
local function rewrite(job)
  job.packed = packed_of(job.head)
  heads[#heads + 1] = job.id
  heads[#heads + 1] = job.packed
end

-- Put a lifted job where its head says.
local function put(job)
  local head = job.head
  local queue, state = head[QUEUE], head[STATE]
  count(queue, state, 1)
  if state == 'running' then
    add_later(prefix .. 'leases:' .. head[WORKER], job.lease_ends_at, member(job))
    holders[head[WORKER]] = true
    if head[CANCEL_REASON] then
      wishes[job.id] = head[CANCEL_REASON]
    end
  elseif FINAL[state] then
    add_later(final_key(queue, state), head[FINISHED_AT], job.id)
  else
    stand_waiting(head, places_of(head), member(job))
  end
  job.is_lifted = false
  job.is_put = true
  rewrite(job)
end

local function put_pending(job)
  job.head[STATE] = 'pending'
  place(queue_of(job.head[QUEUE]), job.head)
  put(job)
end

-- Say in a head that its job begins to wait, behind this gate once it is pending.
local function begin_waiting(head, is_blocked, gate)
  place(queue_of(head[QUEUE]), head)
  head[STATE], head[GATE] = 'pending', gate
  if head[RUN_AT] > now or is_blocked then
    head[STATE], head[CAPPED], head[RESCORE_AT] = is_blocked and 'blocked' or 'scheduled', false, false
    head[GATE] = false
  end
end

-- Put a job that begins to wait.
local function put_new(job, is_blocked, gate)
  begin_waiting(job.head, is_blocked, gate)
  put(job)
end

local function unique_holder(queue, key)
  local known = unique[queue] and unique[queue][key]
  if known == nil then
    return redis.call('HGET', prefix .. 'unique:' .. queue, key)
  end
  return known
end

local function set_unique(queue, key, id)
  unique[queue] = unique[queue] or {}
  unique[queue][key] = id
end

-- Only if it names this very job.
local function free_unique(job)
  local queue, key = job.head[QUEUE], job.head[UNIQUE_KEY]
  if key and unique_holder(queue, key) == job.id then
    set_unique(queue, key, false)
  end
end

local function put_final(job, state, reason, result)
  free_unique(job)
  lift(job)
  local head = job.head
  head[STATE], head[REASON], head[RESULT] = state, reason, result
  head[GATE], head[RESCORE_AT], head[SWEPT_FROM] = false, false, false
  head[FINISHED_AT], head[UPDATED_AT] = now, now
  put(job)
  list_aftermath(job.id, state)
end

-- Forget a job with its unique key, its history, its notes and the edges to its parents.
local function remove(job)
  if job.head[STATE] ~= 'completed' then
    list_aftermath(job.id, 'deleted')
  end
  free_unique(job)
  lift(job)
  gone[#gone + 1] = job
  loaded[job.id] = false
end

local function tell(kind, job, actor, attempt, detail, changes)
  told[#told + 1] = {kind, now, job.id, job.head[QUEUE], attempt, actor, detail, changes}
end

-- What an event has changed, as JSON: names, what was before and what is after; texts, numbers, or false for nothing.
local function changed(list)
  local parts = {}
  for _, one in ipairs(list) do
    local values = {}
    for i = 2, 3 do
      local value = one[i]
      values[i - 1] = type(value) == 'number' and string.format('%.0f', value) or value and cjson.encode(value) or 'null'
    end
    if values[1] ~= values[2] then
      parts[#parts + 1] = '"' .. one[1] .. '":[' .. values[1] .. ',' .. values[2] .. ']'
    end
  end
  return #parts > 0 and '{' .. table.concat(parts, ',') .. '}'
end
