#!lua flags=allow-oom
-- Work on the list of what the ends of jobs mean for those that depend on them. Says the same as domain/dependencies.py.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: limit (edges to look at); delay_ms, reset, actor, dependants, fresh for jobs that are revived
-- Returns whether jobs wait now that did not before.
local EDGE_STATES = {
  completed = {OPEN, OPEN}, dead = {OPEN, OPEN}, cancelled = {OPEN, OPEN}, deleted = {OPEN, HELD},
  cancel = {OPEN, HELD}, revived = {HELD, FAILED}, ['revive'] = {HELD, FAILED},
}

-- What becomes of an edge, and of its child if that is blocked.
local function edge_transition(event, on_failure)
  if event == 'completed' then
    return MET
  end
  if event == 'revived' or event == 'revive' then
    return OPEN
  end
  if event == 'cancel' or on_failure == 'cancel' or (event == 'deleted' and on_failure == 'hold') then
    return FAILED, 'cancelled'
  end
  if on_failure == 'fail' then
    return FAILED, 'dead'
  end
  return on_failure == 'ignore' and MET or HELD
end

local function parent_reason(event, parent)
  if event == 'cancel' then
    return 'cancelled with ' .. parent .. ', which it depends on'
  end
  return parent .. ', which it depends on, ' .. (event == 'deleted' and 'was deleted' or 'is ' .. event)
end

-- How many edges block a child, after one of them has changed.
local function change_unmet(id, old_state, new_state)
  local unmet = unmet_changes[id] or tonumber(redis.call('HGET', prefix .. 'unmet', id) or 0)
  local change = ((new_state == OPEN or new_state == HELD) and 1 or 0) - ((old_state == OPEN or old_state == HELD) and 1 or 0)
  unmet_changes[id] = unmet + change
  return unmet_changes[id]
end

local scan_positions = {}  -- queue -> up to which number `rescore` has looked at its jobs

local function is_already_scanned(queue, seq)
  scan_positions[queue] = scan_positions[queue] or tonumber(redis.call('HGET', prefix .. 'capped_scan', queue) or 0)
  return seq <= scan_positions[queue]
end

-- Say in the head of a blocked job that it waits like any other, or behind this gate. Nearly every job runs before its age is capped; one that
-- does not is found by its number, as those are that were never blocked, unless `rescore` has come past it already.
local function set_released(header, lane)
  -- Without a delay it has no time to wait for, even if the clock was set back: `due_on_release` in domain/dependencies.py.
  local has_delay = header[RUN_AT] > math.max(header[CREATED_AT], header[UPDATED_AT])
  header[RUN_AT] = has_delay and math.max(header[RUN_AT], now) or now
  header[READY_AT], header[UPDATED_AT] = header[RUN_AT], now
  begin_waiting(header, false, lane)
  if not header[DEADLINE_AT] and not is_already_scanned(header[QUEUE], header[SEQ]) then
    header[RESCORE_AT] = false
  end
end

local function release_job(job)
  unindex_job(job)
  set_released(job.header, lane_when_due(job))
  index_job(job)
end

local MIN_RANGE = 8
local header_kinds = {}  -- what stands before and after its number in a head -> how such jobs stood and stand; false for others

local function load_kind(packed)
  local is_whole, header = pcall(unpack_header, packed)
  if not is_whole or not header[SEQ] or header[STATE] ~= 'blocked' then
    return false
  end
  local kind = {header = header, queue = header[QUEUE], old_entries = index_entries(header), members = {}}
  is_already_scanned(header[QUEUE], header[SEQ])
  kind.scanned_to = scan_positions[header[QUEUE]]
  set_released(header, false)
  kind.new_entries = index_entries(header)
  kind.before, kind.after = split_header(header)
  return kind
end

-- Take jobs out of an order. Those that came together mostly stand there one after the other, as they are named here;
-- then one command takes them out whatever their number. For a few it is not worth the look.
local function remove_range(key, members)
  local first = #members >= MIN_RANGE and redis.call('ZRANK', key, members[1])
  local stored_members = first and redis.call('ZRANGE', key, first, first + #members - 1) or {}
  for i = 1, #members do
    if stored_members[i] ~= members[i] then
      return call_in_slices('ZREM', key, members)
    end
  end
  redis.call('ZREMRANGEBYRANK', key, first, first + #members - 1)
end

-- Move what was found of a kind to where it waits now.
local function move_released(kind)
  local members = kind.members
  for i = 1, #kind.old_entries, 2 do
    remove_range(kind.old_entries[i], members)
  end
  for i = 1, #kind.new_entries, 2 do
    local score, entries = kind.new_entries[i + 1], {}
    for k = 1, #members do
      entries[2 * k - 1], entries[2 * k] = score, members[k]
    end
    call_in_slices('ZADD', kind.new_entries[i], entries)
  end
  change_count(kind.queue, 'blocked', -#members)
  change_count(kind.queue, kind.header[STATE], #members)
  needs_wakeup, kind.members = true, {}
end

-- Blocked jobs that came together differ in their numbers alone, and do so when they are released; answers the others.
local function release_identical(ids)
  if has_fairness_keys() then
    return ids  -- whose job it is says its body alone
  end
  local byte, sub, known, packed_by_id, unpacked_jobs = string.byte, string.sub, header_kinds, packed_headers, loaded_jobs
  local written, at, others, found = header_writes, #header_writes, {}, {}
  for i = 1, #ids do
    local id = ids[i]
    local packed = unpacked_jobs[id] == nil and packed_by_id[id] or ''
    local high, low, own = byte(packed, 1, 3)
    local seq_at = own and 5 + 256 * high + low
    local kind, seq
    if own then
      local before, after = sub(packed, 1, seq_at - 1), sub(packed, seq_at + 13)
      seq = sub(packed, seq_at, seq_at + 12)
      local by_suffix = known[before]
      if not by_suffix then
        by_suffix = {}
        known[before] = by_suffix
      end
      kind = by_suffix[after]
      if kind == nil then
        kind = load_kind(packed)
        by_suffix[after] = kind
      end
    end
    if kind and tonumber(seq) > kind.scanned_to then
      local header, members = kind.before .. seq .. kind.after, kind.members
      packed_by_id[id], written[at + 1], written[at + 2] = header, id, header
      at = at + 2
      members[#members + 1] = seq .. ':' .. id
      found[kind] = true
    else
      others[#others + 1] = id
    end
  end
  for kind in pairs(found) do
    move_released(kind)
  end
  return others
end

local function release_jobs(ids)
  for _, id in ipairs(release_identical(ids)) do
    local job = load_job(id)
    if job and job.header[STATE] == 'blocked' then
      release_job(job)
    end
  end
end

-- A job that does not live any more is out of its sequence, and the next one may run.
local function leave_sequence(id)
  local sequence = redis.call('HGET', prefix .. 'job_sequence', id)
  local job = sequence and load_job(id)
  if not sequence or (job and not FINAL[job.header[STATE]]) then
    return
  end
  local key = prefix .. 'sequence:' .. sequence
  local was_first = redis.call('ZRANK', key, id) == 0
  redis.call('ZREM', key, id)
  redis.call('HDEL', prefix .. 'job_sequence', id)
  local next_id = was_first and redis.call('ZRANGE', key, 0, 0)[1] or (not was_first and job and id)
  if next_id and change_unmet(next_id, OPEN, MET) == 0 then
    local next_job = load_job(next_id)
    if next_job and next_job.header[STATE] == 'blocked' then
      release_job(next_job)
    end
  end
end

local function resolve_edge(event, parent, name)
  local id, position = string.match(name, '^(.*)%z(%d+)$')
  local job = load_job(id)
  if not job then
    redis.call('ZREM', prefix .. 'children:' .. parent, name)
    return
  end
  local new_state, final_state = edge_transition(event, failure_policy(id, tonumber(position)))
  -- As it stands now: a child that was revived because of another edge to this parent has reopened this one too.
  local old_state = tonumber(redis.call('ZSCORE', prefix .. 'children:' .. parent, name))
  redis.call('ZADD', prefix .. 'children:' .. parent, new_state, name)
  local blocking = change_unmet(id, old_state, new_state)
  if event == 'cancel' then
    add_outbox_entry(id, event) -- before the line of its end, which would go by what the edges say
  end
  if event == 'revive' and old_state == FAILED then
    local target = job.header[QUEUE]
    if not revive_refusal(job, target) then
      flush()
      revive_job(job, target, HELD)
    end
  elseif job.header[STATE] == 'blocked' and final_state then
    local reason = parent_reason(event, parent)
    finish_job(job, final_state, reason, false)
    add_event('parent', job, false, false, reason)
  elseif job.header[STATE] == 'blocked' and new_state == MET and blocking == 0 then
    release_job(job)
  end
end

-- What one line says; answers how many edges it looked at.
local function propagate_entry(entry, limit)
  local parent, event = entry[1], entry[2]
  local states = EDGE_STATES[event]
  if event == 'deleted' or FINAL[event] then
    leave_sequence(parent)
  end
  local found = redis.call('ZRANGEBYSCORE', prefix .. 'children:' .. parent, states[1], states[2], 'LIMIT', 0, limit)
  local ids = {}
  for i, name in ipairs(found) do
    ids[i] = string.match(name, '^(.*)%z')
  end
  load_jobs(ids)
  for _, name in ipairs(found) do
    resolve_edge(event, parent, name)
  end
  flush()
  if #ids < limit then
    redis.call('LPOP', prefix .. 'dependency_outbox')
    outbox_parents = event ~= 'deleted' and outbox_parents or nil
  end
  return math.max(#ids, 1)
end

-- The edges behind a job that has completed are met; answers how many, and counts them by child. They keep their scores (see
-- `is_met`): to give each a new one would be a command for each parent of a join. Only where more of them are left than
-- there is room for are they told apart that way.
local function meet_edges(parent, limit, met_counts, ids)
  local key = prefix .. 'children:' .. parent
  local names = redis.call('ZRANGEBYSCORE', key, OPEN, OPEN, 'LIMIT', 0, limit)
  for i = 1, #names do
    local id = string.sub(names[i], 1, -7)
    if not met_counts[id] then
      met_counts[id] = 0
      ids[#ids + 1] = id
    end
    met_counts[id] = met_counts[id] + 1
  end
  if #names == limit then
    local entries = {}
    for i, name in ipairs(names) do
      entries[2 * i - 1], entries[2 * i] = MET, name
    end
    call_in_slices('ZADD', key, entries)
  end
  return #names
end

-- What most lines say, together: jobs that have completed. One by one, each parent of a join would take ten commands.
-- Answers how many edges were met.
local function meet_completed(limit)
  local met_counts, ids, scanned, done_entries = {}, {}, 0, 0
  local has_sequences = redis.call('EXISTS', prefix .. 'job_sequence') == 1
  local rest
  for _, packed in ipairs(redis.call('LRANGE', prefix .. 'dependency_outbox', 0, limit - 1)) do
    local parents, event = unpack(cmsgpack.unpack(packed))
    if event ~= 'completed' or scanned >= limit then
      break
    end
    parents = type(parents) == 'table' and parents or {parents}
    for i, parent in ipairs(parents) do
      local left = limit - scanned
      local found = left > 0 and meet_edges(parent, left, met_counts, ids) or left
      if found == left then
        rest = {unpack(parents, i)}  -- there may be more behind this one
        break
      end
      if has_sequences then
        leave_sequence(parent)
      end
      scanned = scanned + math.max(found, 1)
    end
    if rest then
      scanned = limit
      break
    end
    done_entries = done_entries + 1
  end
  prefetch_headers(ids)
  local stored_counts, changes, unblocked = fetch('HMGET', ids, prefix .. 'unmet'), unmet_changes, {}
  for i = 1, #ids do
    local id = ids[i]
    -- One that has moved up in its sequence is counted already.
    local left = (changes[id] or tonumber(stored_counts[i] or 0)) - met_counts[id]
    changes[id] = left ~= 0 and left or nil
    if left == 0 then
      unblocked[#unblocked + 1] = id
    end
  end
  call_in_slices('HDEL', prefix .. 'unmet', unblocked)
  release_jobs(unblocked)
  flush()
  if done_entries > 0 then
    redis.call('LTRIM', prefix .. 'dependency_outbox', done_entries, -1)
  end
  if rest then
    redis.call('LSET', prefix .. 'dependency_outbox', 0, cmsgpack.pack({rest, 'completed'}))
  end
  outbox_parents = nil  -- one that is revived by a later line finds its count anew, and nobody lowers that for these parents
  return scanned
end

local scanned = 0
while scanned < request.limit do
  local packed = redis.call('LINDEX', prefix .. 'dependency_outbox', 0)
  if not packed then
    break
  end
  local entry, limit = cmsgpack.unpack(packed), request.limit - scanned
  if entry[2] == 'completed' then
    scanned = scanned + meet_completed(limit)
  else
    scanned = scanned + propagate_entry(entry, limit)
  end
end
has_outbox_entries = redis.call('EXISTS', prefix .. 'dependency_outbox') == 1
return finish(needs_wakeup and 1 or 0)
