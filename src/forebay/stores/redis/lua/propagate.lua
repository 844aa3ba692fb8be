#!lua flags=allow-oom
-- propagate: work off the dependency outbox. Same rules as domain/dependencies.py.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: limit (edges to process); delay_ms, reset, actor, dependants, default_queue for revived jobs
-- Returns whether jobs wait now that did not before.
local EDGE_STATES = {
  completed = {OPEN, OPEN}, dead = {OPEN, OPEN}, cancelled = {OPEN, OPEN}, deleted = {OPEN, HELD},
  cancel = {OPEN, HELD}, revived = {HELD, FAILED}, ['revive'] = {HELD, FAILED},
}

-- New state of an edge, and final state of its child if that is blocked.
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

-- Adjust the number of edges that block a child after one of them has changed; returns it.
local function change_unmet(id, old_state, new_state)
  local unmet = unmet_changes[id] or tonumber(redis.call('HGET', prefix .. 'unmet', id) or 0)
  local blocked_before = (old_state == OPEN or old_state == HELD) and 1 or 0
  local change = ((new_state == OPEN or new_state == HELD) and 1 or 0) - blocked_before
  unmet_changes[id] = unmet + change
  return unmet_changes[id]
end

local scan_positions = {}  -- queue -> seq up to which `rescore` has checked its jobs

local function is_already_scanned(queue, seq)
  scan_positions[queue] = scan_positions[queue] or tonumber(redis.call('HGET', prefix .. 'capped_scan', queue) or 0)
  return seq <= scan_positions[queue]
end

-- Set the header of a blocked job to waiting, in this lane. Nearly every job runs before its age bonus is used up; the
-- rest is found by seq, like jobs that were never blocked. If `rescore` has passed the seq already, the job gets a
-- rescore time.
local function set_released(header, lane)
  -- Without a delay it is due at once, even if the clock was set back: `due_on_release` in domain/dependencies.py.
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
-- Header parts around the seq -> index entries of such jobs before and after their release; false for other headers.
local header_kinds = {}

local function load_kind(packed)
  local is_decoded, header = pcall(unpack_header, packed)
  if not is_decoded or not header[SEQ] or header[STATE] ~= 'blocked' then
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

-- Remove members from a sorted set. Jobs inserted together are mostly neighbours in the order given here; then one
-- command removes them all. For a few members the check costs more than it saves.
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

-- Move the jobs of one kind from their old index entries to the new ones.
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

-- Release blocked jobs that were inserted together: their headers differ in the seq alone, before and after. Returns
-- the ids of the others.
local function release_identical(ids)
  if has_fairness_keys() then
    return ids  -- only the body names a fairness key
  end
  local byte, sub, known = string.byte, string.sub, header_kinds
  local packed_by_id, unpacked_jobs = packed_headers, loaded_jobs
  local written, at, others, used_kinds = header_writes, #header_writes, {}, {}
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
      used_kinds[kind] = true
    else
      others[#others + 1] = id
    end
  end
  for kind in pairs(used_kinds) do
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

-- Remove a job that no longer lives from its sequence, and let the next one run.
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
  -- The score is read again: reviving the child for another edge to this parent has reopened this edge too.
  local old_state = tonumber(redis.call('ZSCORE', prefix .. 'children:' .. parent, name))
  redis.call('ZADD', prefix .. 'children:' .. parent, new_state, name)
  local blocking = change_unmet(id, old_state, new_state)
  if event == 'cancel' then
    add_outbox_entry(id, event)  -- before the entry of its end, which would follow the edge scores
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
    add_event('parent_failed', job, false, false, reason)
  elseif job.header[STATE] == 'blocked' and new_state == MET and blocking == 0 then
    release_job(job)
  end
end

-- Process one outbox entry; returns the number of edges processed.
local function propagate_entry(entry, limit)
  local parent, event = entry[1], entry[2]
  local states = EDGE_STATES[event]
  if event == 'deleted' or FINAL[event] then
    leave_sequence(parent)
  end
  local edge_names = redis.call('ZRANGEBYSCORE', prefix .. 'children:' .. parent, states[1], states[2], 'LIMIT', 0, limit)
  local ids = {}
  for i, name in ipairs(edge_names) do
    ids[i] = string.match(name, '^(.*)%z')
  end
  load_jobs(ids)
  for _, name in ipairs(edge_names) do
    resolve_edge(event, parent, name)
  end
  flush()
  if #ids < limit then
    redis.call('LPOP', prefix .. 'dependency_outbox')
    outbox_parents = event ~= 'deleted' and outbox_parents or nil
  end
  return math.max(#ids, 1)
end

-- Mark the edges of a completed parent as met; returns their number, and counts them by child. They keep their scores
-- (see `is_met`), since new ones would take a command for each parent of a join. Only if more edges are left than the
-- limit allows, new scores tell them apart.
local function mark_edges_met(parent, limit, met_counts, ids)
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

-- Process all leading entries of completed jobs together. One by one, each parent of a join would take ten commands.
-- Returns the number of edges met.
local function propagate_completed(limit)
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
      local edge_count = left > 0 and mark_edges_met(parent, left, met_counts, ids) or left
      if edge_count == left then
        rest = {unpack(parents, i)}  -- more edges of this parent may be left
        break
      end
      if has_sequences then
        leave_sequence(parent)
      end
      scanned = scanned + math.max(edge_count, 1)
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
    -- A child that moved up in its sequence is counted already.
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
  -- A job revived by a later entry counts its edges anew, and nothing decrements them for these parents.
  outbox_parents = nil
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
    scanned = scanned + propagate_completed(limit)
  else
    scanned = scanned + propagate_entry(entry, limit)
  end
end
has_outbox_entries = redis.call('EXISTS', prefix .. 'dependency_outbox') == 1
return finish(needs_wakeup and 1 or 0)
