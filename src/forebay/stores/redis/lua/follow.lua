#!lua flags=allow-oom
-- Work on the list of what the ends of jobs mean for those that depend on them. Says the same as domain/dependencies.py.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: limit (edges to look at); delay_ms, reset, actor, dependants, fresh for jobs that are revived
-- Returns whether jobs wait now that did not before.
local CONCERNED = {
  completed = {OPEN, OPEN}, dead = {OPEN, OPEN}, cancelled = {OPEN, OPEN}, deleted = {OPEN, HELD},
  cancel = {OPEN, HELD}, revived = {HELD, FAILED}, ['revive'] = {HELD, FAILED},
}

-- What becomes of an edge, and of its child if that is blocked.
local function sequel(word, how)
  if word == 'completed' then
    return MET
  end
  if word == 'revived' or word == 'revive' then
    return OPEN
  end
  if word == 'cancel' or how == 'cancel' or (word == 'deleted' and how == 'hold') then
    return FAILED, 'cancelled'
  end
  if how == 'fail' then
    return FAILED, 'dead'
  end
  return how == 'ignore' and MET or HELD
end

local function why_ended(word, parent)
  if word == 'cancel' then
    return 'cancelled with ' .. parent .. ', which it depends on'
  end
  return parent .. ', which it depends on, ' .. (word == 'deleted' and 'was deleted' or 'is ' .. word)
end

-- How many edges block a child, after one of them has changed.
local function count_unmet(id, was, into)
  local before = unmet[id] or tonumber(redis.call('HGET', prefix .. 'unmet', id) or 0)
  local change = ((into == OPEN or into == HELD) and 1 or 0) - ((was == OPEN or was == HELD) and 1 or 0)
  unmet[id] = before + change
  return unmet[id]
end

local walked_to = {}  -- queue -> up to which number `rescore` has looked at its jobs

local function is_walked_past(queue, seq)
  walked_to[queue] = walked_to[queue] or tonumber(redis.call('HGET', prefix .. 'capped_to', queue) or 0)
  return seq <= walked_to[queue]
end

-- Say in the head of a blocked job that it waits like any other, or behind this gate. Nearly every job runs before its age is capped; one that
-- does not is found by its number, as those are that were never blocked, unless `rescore` has come past it already.
local function let_wait(head, gate)
  -- Without a delay it has no time to wait for, even if the clock was set back: `due_on_release` in domain/dependencies.py.
  local has_delay = head[RUN_AT] > math.max(head[CREATED_AT], head[UPDATED_AT])
  head[RUN_AT] = has_delay and math.max(head[RUN_AT], now) or now
  head[READY_AT], head[UPDATED_AT] = head[RUN_AT], now
  begin_waiting(head, false, gate)
  if not head[DEADLINE_AT] and not is_walked_past(head[QUEUE], head[SEQ]) then
    head[RESCORE_AT] = false
  end
end

local function release(job)
  lift(job)
  let_wait(job.head, gate_when_due(job))
  put(job)
end

local FEW = 8
local kinds = {}  -- what stands before and after its number in a head -> how such jobs stood and stand; false for others

local function kind_of(packed)
  local is_whole, head = pcall(unpacked, packed)
  if not is_whole or not head[SEQ] or head[STATE] ~= 'blocked' then
    return false
  end
  local kind = {head = head, queue = head[QUEUE], were = places_of(head), members = {}}
  is_walked_past(head[QUEUE], head[SEQ])
  kind.from = walked_to[head[QUEUE]]
  let_wait(head, false)
  kind.places = places_of(head)
  kind.before, kind.after = halves_of(head)
  return kind
end

-- Take jobs out of an order. Those that came together mostly stand there one after the other, as they are named here;
-- then one command takes them out whatever their number. For a few it is not worth the look.
local function take_out(key, members)
  local first = #members >= FEW and redis.call('ZRANK', key, members[1])
  local there = first and redis.call('ZRANGE', key, first, first + #members - 1) or {}
  for i = 1, #members do
    if there[i] ~= members[i] then
      return send('ZREM', key, members)
    end
  end
  redis.call('ZREMRANGEBYRANK', key, first, first + #members - 1)
end

-- Move what was found of a kind to where it waits now.
local function move_kind(kind)
  local members = kind.members
  for i = 1, #kind.were, 2 do
    take_out(kind.were[i], members)
  end
  for i = 1, #kind.places, 2 do
    local score, entries = kind.places[i + 1], {}
    for k = 1, #members do
      entries[2 * k - 1], entries[2 * k] = score, members[k]
    end
    send('ZADD', kind.places[i], entries)
  end
  count(kind.queue, 'blocked', -#members)
  count(kind.queue, kind.head[STATE], #members)
  has_news, kind.members = true, {}
end

-- Blocked jobs that came together differ in their numbers alone, and do so when they are released; answers the others.
local function release_alike(ids)
  if has_shares() then
    return ids  -- whose job it is says its body alone
  end
  local byte, sub, known, packs, opened_jobs = string.byte, string.sub, kinds, stored, loaded
  local written, at, others, found = heads, #heads, {}, {}
  for i = 1, #ids do
    local id = ids[i]
    local packed = opened_jobs[id] == nil and packs[id] or ''
    local high, low, own = byte(packed, 1, 3)
    local number_at = own and 5 + 256 * high + low
    local kind, number
    if own then
      local before, after = sub(packed, 1, number_at - 1), sub(packed, number_at + 13)
      number = sub(packed, number_at, number_at + 12)
      local like_it = known[before]
      if not like_it then
        like_it = {}
        known[before] = like_it
      end
      kind = like_it[after]
      if kind == nil then
        kind = kind_of(packed)
        like_it[after] = kind
      end
    end
    if kind and tonumber(number) > kind.from then
      local head, members = kind.before .. number .. kind.after, kind.members
      packs[id], written[at + 1], written[at + 2] = head, id, head
      at = at + 2
      members[#members + 1] = number .. ':' .. id
      found[kind] = true
    else
      others[#others + 1] = id
    end
  end
  for kind in pairs(found) do
    move_kind(kind)
  end
  return others
end

local function release_found(ids)
  for _, id in ipairs(release_alike(ids)) do
    local job = find(id)
    if job and job.head[STATE] == 'blocked' then
      release(job)
    end
  end
end

-- A job that does not live any more is out of its sequence, and the next one may run.
local function leave_sequence(id)
  local sequence = redis.call('HGET', prefix .. 'sequence_of', id)
  local job = sequence and find(id)
  if not sequence or (job and not FINAL[job.head[STATE]]) then
    return
  end
  local key = prefix .. 'sequence:' .. sequence
  local was_first = redis.call('ZRANK', key, id) == 0
  redis.call('ZREM', key, id)
  redis.call('HDEL', prefix .. 'sequence_of', id)
  local moved = was_first and redis.call('ZRANGE', key, 0, 0)[1] or (not was_first and job and id)
  if moved and count_unmet(moved, OPEN, MET) == 0 then
    local next_job = find(moved)
    if next_job and next_job.head[STATE] == 'blocked' then
      release(next_job)
    end
  end
end

local function settle_edge(word, parent, name)
  local id, number = string.match(name, '^(.*)%z(%d+)$')
  local job = find(id)
  if not job then
    redis.call('ZREM', prefix .. 'behind:' .. parent, name)
    return
  end
  local into, ending = sequel(word, policy_of(id, tonumber(number)))
  -- As it stands now: a child that was revived because of another edge to this parent has reopened this one too.
  local was = tonumber(redis.call('ZSCORE', prefix .. 'behind:' .. parent, name))
  redis.call('ZADD', prefix .. 'behind:' .. parent, into, name)
  local blocking = count_unmet(id, was, into)
  if word == 'cancel' then
    list_aftermath(id, word) -- before the line of its end, which would go by what the edges say
  end
  if word == 'revive' and was == FAILED then
    local target = job.head[QUEUE]
    if not why_not_revived(job, target) then
      flush()
      revive(job, target, HELD)
    end
  elseif job.head[STATE] == 'blocked' and ending then
    local reason = why_ended(word, parent)
    put_final(job, ending, reason, false)
    tell('parent', job, false, false, reason)
  elseif job.head[STATE] == 'blocked' and into == MET and blocking == 0 then
    release(job)
  end
end

-- What one line says; answers how many edges it looked at.
local function follow_line(line, room)
  local parent, word = line[1], line[2]
  local span = CONCERNED[word]
  if word == 'deleted' or FINAL[word] then
    leave_sequence(parent)
  end
  local found = redis.call('ZRANGEBYSCORE', prefix .. 'behind:' .. parent, span[1], span[2], 'LIMIT', 0, room)
  local ids = {}
  for i, name in ipairs(found) do
    ids[i] = string.match(name, '^(.*)%z')
  end
  load(ids)
  for _, name in ipairs(found) do
    settle_edge(word, parent, name)
  end
  flush()
  if #ids < room then
    redis.call('LPOP', prefix .. 'aftermaths')
    listed = word ~= 'deleted' and listed or nil
  end
  return math.max(#ids, 1)
end

-- The edges behind a job that has completed are met; answers how many, and counts them by child. They keep their scores (see
-- `is_met`): to give each a new one would be a command for each parent of a join. Only where more of them are left than
-- there is room for are they told apart that way.
local function meet(parent, room, met, ids)
  local key = prefix .. 'behind:' .. parent
  local found = redis.call('ZRANGEBYSCORE', key, OPEN, OPEN, 'LIMIT', 0, room)
  for i = 1, #found do
    local id = string.sub(found[i], 1, -7)
    if not met[id] then
      met[id] = 0
      ids[#ids + 1] = id
    end
    met[id] = met[id] + 1
  end
  if #found == room then
    local entries = {}
    for i, name in ipairs(found) do
      entries[2 * i - 1], entries[2 * i] = MET, name
    end
    send('ZADD', key, entries)
  end
  return #found
end

-- What most lines say, together: jobs that have completed. One by one, each parent of a join would take ten commands.
-- Answers how many edges were met.
local function meet_all(room)
  local met, ids, looked_at, over = {}, {}, 0, 0
  local has_sequences = redis.call('EXISTS', prefix .. 'sequence_of') == 1
  local rest
  for _, packed in ipairs(redis.call('LRANGE', prefix .. 'aftermaths', 0, room - 1)) do
    local parents, word = unpack(cmsgpack.unpack(packed))
    if word ~= 'completed' or looked_at >= room then
      break
    end
    parents = type(parents) == 'table' and parents or {parents}
    for i, parent in ipairs(parents) do
      local left = room - looked_at
      local found = left > 0 and meet(parent, left, met, ids) or left
      if found == left then
        rest = {unpack(parents, i)}  -- there may be more behind this one
        break
      end
      if has_sequences then
        leave_sequence(parent)
      end
      looked_at = looked_at + math.max(found, 1)
    end
    if rest then
      looked_at = room
      break
    end
    over = over + 1
  end
  bring(ids)
  local were, counts, free = fetch('HMGET', ids, prefix .. 'unmet'), unmet, {}
  for i = 1, #ids do
    local id = ids[i]
    -- One that has moved up in its sequence is counted already.
    local left = (counts[id] or tonumber(were[i] or 0)) - met[id]
    counts[id] = left ~= 0 and left or nil
    if left == 0 then
      free[#free + 1] = id
    end
  end
  send('HDEL', prefix .. 'unmet', free)
  release_found(free)
  flush()
  if over > 0 then
    redis.call('LTRIM', prefix .. 'aftermaths', over, -1)
  end
  if rest then
    redis.call('LSET', prefix .. 'aftermaths', 0, cmsgpack.pack({rest, 'completed'}))
  end
  listed = nil  -- one that is revived by a later line finds its count anew, and nobody lowers that for these parents
  return looked_at
end

local looked_at = 0
while looked_at < ask.limit do
  local packed = redis.call('LINDEX', prefix .. 'aftermaths', 0)
  if not packed then
    break
  end
  local line, room = cmsgpack.unpack(packed), ask.limit - looked_at
  if line[2] == 'completed' then
    looked_at = looked_at + meet_all(room)
  else
    looked_at = looked_at + follow_line(line, room)
  end
end
has_listed = redis.call('EXISTS', prefix .. 'aftermaths') == 1
return finish(has_news and 1 or 0)
