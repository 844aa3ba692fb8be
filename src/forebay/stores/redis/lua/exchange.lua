#!lua flags=allow-oom
-- Keep notes, settle what has ended, then claim for the room there is.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: worker, notes, ends, completed (how many), places (of these among all settlements, where there
--       are others), wants, room, known; lots and the rest for follow-ups (see intake).  2... id and packed result of each job that was completed at its first
--       attempt; results and steps, as the request numbers them; then id and body of each follow-up
-- Returns an answer for each end (settled, repeated, or why not), number and answer of each completed one that
-- was not settled, claimed jobs, rows of adopted ones, cancels, the wait until the next job is due, an answer
-- for each note. Claimed jobs are lists of ids, heads, bodies and ends of leases, pairs of a number and the
-- last bad attempts of that job, and pairs of a number and how many attempts of that job never began.
-- Nothing is written before all settlements and follow-ups are known to be possible.
local worker = ask.worker
local PROMOTED = 1000
local LOOKS = 2000
local LEGAL = {completed = 1, cancelled = 1, dead = 1, retrying = 1, scheduled = 1, pending = 1}

-- Notes. A note: id, attempt, progress, lines {place, text, ...}, steps {name, argument, ...}
-- `true` stands for a text that the caller could not write; that matters only to the holder of the lease.
local MAX_LINES, MAX_STEPS = 200, 1000

local function keep_lines(id, lines)
  local key = prefix .. 'lines:' .. id
  local known = {}
  for _, line in ipairs(redis.call('LRANGE', key, 0, -1)) do
    known[string.match(line, '^(%d*) ')] = true
  end
  local fresh = {}
  for i = 1, #lines, 2 do
    local number = lines[i] and string.format('%.0f', lines[i]) or ''
    -- Lines of one note are not compared with each other: they were made by one attempt, in order.
    if number == '' or not known[number] then
      fresh[#fresh + 1] = number .. ' ' .. lines[i + 1]
    end
  end
  send('RPUSH', key, fresh)
  redis.call('LTRIM', key, -MAX_LINES, -1)
end

local function keep_steps(id, steps)
  local key = prefix .. 'steps:' .. id
  for i = 1, #steps, 2 do
    local length = redis.call('HLEN', key)
    if length < MAX_STEPS then
      local order = string.format('%04d', length)
      redis.call('HSETNX', key, steps[i], order .. string.format('%.0f ', now) .. ARGV[steps[i + 1]])
    end
  end
end

local function keep(note)
  if note[3] then
    redis.call('SET', prefix .. 'notes:' .. note[1], string.format('%.0f ', now) .. note[3])
  end
  if #note[4] > 0 then
    keep_lines(note[1], note[4])
  end
  if #note[5] > 0 then
    keep_steps(note[1], note[5])
  end
end

local function note_all()
  local answers = {}
  for i, note in ipairs(ask.notes) do
    local reason = why_not_held(find(note[1]), note[2], worker)
    answers[i] = reason or ''
    if not reason then
      for k = 1, #note[5], 2 do
        if note[5][k] == true then
          return answers, {'Unwritable', note[1]}
        end
      end
      noted[#noted + 1] = function() keep(note) end
    end
  end
  return answers
end

-- Settlements
local E_ID, E_ATTEMPT, E_ENDING, E_STATE, E_FAILURES, E_CRASHES, E_DELAY_MS = 1, 2, 3, 4, 5, 6, 7
local E_REASON, E_GATE, E_RESULT, E_ERROR, E_FOLLOW_UPS, E_COST, E_SCOPES = 8, 9, 10, 11, 12, 13, 14
local E_UNSTARTED, E_PLACE = 15, 16

local RECORDED = {failed = 1, discarded = 1, lost = 1}  -- these leave a row in the history

local recorded_now = {}  -- endings by id and attempt whose rows are written with the rest of this call

-- The ending in the row that this worker has left of an attempt. By who settled it, not who ran it: a holder
-- whose lease was swept has ended nothing.
local function recorded_ending(job, attempt)
  if job.head[ERRORS] == 0 then
    return
  end
  for _, packed in ipairs(redis.call('LRANGE', prefix .. 'attempts:' .. job.id, 0, -1)) do
    local bad = cmsgpack.unpack(packed)
    if bad[1] == attempt and bad[7] == worker then
      return bad[2]
    end
  end
  return recorded_now[job.id .. ' ' .. attempt]
end

-- Whether this worker has ended this very attempt in the same way; `is_same_end` in domain/settlement.py says why.
local function is_repeated(job, attempt, ending, delay_ms)
  local head = job.head
  local recorded = recorded_ending(job, attempt)
  if recorded or RECORDED[ending] then
    return recorded == ending
  end
  local state = head[STATE]
  local is_newest = head[ATTEMPT] == attempt and head[WORKER] == worker and state ~= 'running'
  if not is_newest then
    return false
  end
  if ending == 'completed' or state == 'completed' then
    return ending == state
  end
  if state == 'pending' and ending == 'snoozed' then
    return head[RUN_AT] < head[UPDATED_AT] and head[RUN_AT] >= head[STARTED_AT] + delay_ms
  end
  return state ~= 'scheduled' or ending == 'snoozed'
end

local function keep_error(job, ending)
  local head = job.head
  head[ERRORS] = head[ERRORS] + 1
  recorded_now[job.id .. ' ' .. head[ATTEMPT]] = ending[E_ENDING]
  local bad = {
    head[ATTEMPT], ending[E_ENDING], head[SWEPT_FROM] or worker, head[STARTED_AT], now, ending[E_ERROR], worker,
  }
  noted[#noted + 1] = function()
    redis.call('RPUSH', prefix .. 'attempts:' .. job.id, cmsgpack.pack(bad))
  end
end

local function put_back(job, ending)
  local head = job.head
  local state = ending[E_STATE]
  lift(job)
  head[STATE] = state
  head[RUN_AT] = now + (state == 'pending' and 0 or ending[E_DELAY_MS])
  head[GATE], head[SWEPT_FROM], head[RESCORE_AT], head[UPDATED_AT] = ending[E_GATE], false, false, now
  if head[GATE] then
    local reason = ending[E_REASON]
    local detail = reason and reason ~= '' and head[GATE] .. ': ' .. reason or head[GATE]
    tell('held', job, head[WORKER], head[ATTEMPT], detail)
  end
  if state == 'pending' then
    put_pending(job)
  else
    put(job)
  end
end

local function finish_attempt(job, ending)
  local head = job.head
  local state = ending[E_STATE]
  if ending[E_ERROR] then
    keep_error(job, ending)
  end
  head[FAILURES], head[CRASHES] = ending[E_FAILURES], ending[E_CRASHES]
  if ending[E_UNSTARTED] then
    noted[#noted + 1] = function()
      redis.call('HSET', prefix .. 'unstarted', job.id, ending[E_UNSTARTED])
    end
  end
  if FINAL[state] then
    local reason = ending[E_REASON]
    if state == 'cancelled' and not reason then
      reason = 'cancelled'
    end
    put_final(job, state, reason, cmsgpack.unpack(ARGV[ending[E_RESULT]]))
  elseif head[CANCEL_REASON] then
    put_final(job, 'cancelled', head[CANCEL_REASON], false)
  else
    put_back(job, ending)
  end
end

local followed = 0

-- The new jobs that a task handed back; answers why they cannot be stored.
local function follow(job, ending)
  local queue, attempt = job.head[QUEUE], ending[E_ATTEMPT]
  for _ = 1, ending[E_FOLLOW_UPS] do
    followed = followed + 1
    local receipt, why_not = accept(followed, 'return', true)
    if why_not then
      return why_not
    end
    if receipt[2] == 0 then
      local detail = ask.lots[ask.lot_of[followed]][2] .. ': key taken by ' .. receipt[1]
      told[#told + 1] = {'unfollowed', now, job.id, queue, attempt, worker, detail}
    end
  end
end

local function settle(ending)
  local job = find(ending[E_ID])
  local reason = why_not_held(job, ending[E_ATTEMPT], worker)
  if not reason then
    if not LEGAL[ending[E_STATE]] then
      return nil, {'IllegalTransition', ending[E_STATE]}
    end
    if ending[E_ERROR] == true or ending[E_REASON] == true or ending[E_GATE] == true then
      return nil, {'Unwritable', ending[E_ID]}
    end
    finish_attempt(job, ending)
    local why_not = follow(job, ending)
    if why_not and why_not[1] ~= 'StillListed' then
      why_not = {'StoreRefused', job.id, why_not}
    end
    return 'settled', why_not
  end
  followed = followed + ending[E_FOLLOW_UPS]
  if job and is_repeated(job, ending[E_ATTEMPT], ending[E_ENDING], ending[E_DELAY_MS]) then
    return 'repeated'
  end
  if job then
    tell('refused', job, worker, ending[E_ATTEMPT], ending[E_ENDING] .. ': ' .. reason)
  end
  return reason
end

-- Claims
-- Lists of ids, heads, keys of bodies, ends of leases; numbers with bad attempts; numbers with unstarted attempts.
local claimed = {{}, {}, {}, {}, {}, {}}

local function start(job, queue, lease_ms)
  local head = job.head
  if head[UNTIL_STARTED] then
    free_unique(job)
  end
  lift(job)
  head[STATE], head[GATE], head[RESCORE_AT], head[SWEPT_FROM] = 'running', false, false, false
  head[ATTEMPT], head[WORKER] = head[ATTEMPT] + 1, worker
  head[STARTED_AT], head[UPDATED_AT] = now, now
  job.lease_ends_at = now + (lease_ms or head[LEASE_MS] or queue[Q_LEASE_MS])
  put(job)
end

local function hold(job, gate)
  lift(job)
  job.head[GATE], job.head[UPDATED_AT] = gate, now
  put(job)
  tell('held', job, worker, false, gate)
end

local function claim_job(job, queue, lease_ms)
  start(job, queue, lease_ms)
  local number = #claimed[1] + 1
  claimed[1][number], claimed[2][number] = job.id, job.packed
  claimed[3][number], claimed[4][number] = body_key(job.head[SEQ]), job.lease_ends_at
  if job.head[ERRORS] > 0 then
    table.insert(claimed[5], {number, errors_of(job)})
  end
  -- An attempt that did not begin was claimed before this one.
  local unstarted = job.head[ATTEMPT] > 1 and redis.call('HGET', prefix .. 'unstarted', job.id)
  if unstarted then
    table.insert(claimed[6], {number, tonumber(unstarted)})
  end
end

-- Take or hold a job; answers whether it was held, nothing where there may be no more of these.
local function claim_or_hold(job, queue, want, passes, may_hold)
  local gate = 'task:' .. job.head[TASK]
  -- One that is late is left for the next call, which expires as many again.
  if job.head[EXPIRES_AT] and job.head[EXPIRES_AT] <= now then
    return false
  end
  if not passes or passes[gate] then
    local scopes, cost = {}, 1
    if is_narrow then
      scopes, cost = narrow_scopes(gate, redis.call('GET', body_key(job.head[SEQ])) or '')
    end
    local full = full_among(scopes)
    if not full then
      claim_job(job, queue, want[W_LEASE_MS])
      take_places(job.id, job.lease_ends_at, scopes, cost)
      if cost ~= 1 then
        take_more(cost - 1)
      end
      return false
    end
    if may_hold then
      put_aside(job, full)
      return true
    end
  elseif may_hold then
    hold(job, gate)
    return true
  end
end

local function claim(want, most)
  local queue = queue_of(want[W_QUEUE])
  if most <= 0 or not queue or (queue[Q_STATE] ~= 'active' and queue[Q_STATE] ~= 'draining') then
    return
  end
  local passes = gates_passed(want)
  local orders = orders_of(want[W_QUEUE], queue, gates_of(want[W_QUEUE], passes))
  local shares = {of = want[W_QUEUE], queue = queue, most = most, known = {}}
  local lease_ms = {want[W_LEASE_MS], queue[Q_LEASE_MS]}
  local full, held, most_held = #claimed[1] + most, 0, want[W_MOST_HELD]
  for _ = 1, most + most_held + LOOKS do
    local room = full - #claimed[1]
    local order, one, share
    if room > 0 and not is_spent(want[W_QUEUE], most - room) then
      order, one, share = leading_in_turn(orders, shares, most)
    end
    if not order then
      break
    end
    -- After a job that costs more than a token, each asks whether anything is left.
    local width = #orders == 1 and #shares == 0 and not is_dear and room or 1
    if is_narrow then
      bring_bodies(order, room)
    end
    if share or start_plainly(order, width, lease_ms, passes, claimed, is_narrow and has_place) == 0 then
      local job = find(id_in(one))
      local was_held = job and claim_or_hold(job, queue, want, passes, held < most_held)
      if job and was_held == nil then
        waits[#waits + 1] = 0  -- enough for now; the next call goes on
        break
      end
      held = held + (was_held and 1 or 0)
      if share and full - #claimed[1] < room then
        move_share(want[W_QUEUE], share)
      end
      order.at = order.at + 1
      if not job then
        remove_later(order.key, one)
      end
    end
  end
end

local function claim_all()
  if #ask.wants > 0 then
    expire(PROMOTED)
  end
  for _, want in ipairs(ask.wants) do
    promote_in(want[W_QUEUE], PROMOTED)
    -- Even for a queue that gives nothing: a gate that stays due would have us asked again at once.
    bring_back(want[W_QUEUE])
    local before = #claimed[1]
    local most = room_within(want[W_QUEUE], math.min(want[W_MOST], ask.room - before))
    claim(want, most)
    take_within(want[W_QUEUE], #claimed[1] - before, most)
    flush()
  end
  if #claimed[1] > 0 then
    holders[worker] = true
  end
  claimed[3] = within_bytes(bodies_of(claimed[3]))
end

local function adopted()
  if not ask.known then
    return {}
  end
  local known, jobs = {}, {}
  for _, lease in ipairs(ask.known) do
    known[lease[1] .. ' ' .. lease[2]] = true
  end
  for _, id in ipairs(claimed[1]) do
    known[id .. ' ' .. find(id).head[ATTEMPT]] = true
  end
  local ids = ids_in(redis.call('ZRANGE', prefix .. 'leases:' .. worker, 0, -1))
  table.sort(ids)
  load(ids)
  for _, id in ipairs(ids) do
    local job = find(id)
    if job and not known[id .. ' ' .. job.head[ATTEMPT]] then
      jobs[#jobs + 1] = job
    end
  end
  return rows_of(jobs)
end

local function next_due_ms()
  local first
  for _, want in ipairs(ask.wants) do
    local due = redis.call('ZRANGE', prefix .. 'due:' .. want[W_QUEUE], 0, 0, 'WITHSCORES')
    local at = tonumber(due[2])
    local known = at and queue_of(want[W_QUEUE])
    if known and known[Q_STAGGER_JOBS] then
      at = math.max(at, tonumber(redis.call('HGET', prefix .. 'duties', 'promote ' .. want[W_QUEUE]) or 0))
    end
    if at and (not first or at < first) then
      first = at
    end
  end
  first = first and math.max(0, first - now)
  for _, wait in ipairs(waits) do
    first = first and math.min(first, wait) or wait
  end
  return first
end

-- Ids of those that were settled.
local settled = {}
local charges = {}  -- endings of attempts that have cost something else than they took
local told_for = {}  -- the place of the settlement that each event is about

local function settle_in_turn(ending, came_at)
  local before = #told
  local answer, why_not = settle(ending)
  -- A job that was put and is lifted again has all that was told before written down.
  for i = #told < before and 1 or before + 1, #told do
    told_for[i] = came_at
  end
  return answer, why_not
end

-- Events in the order in which the settlements came, though those of successes are looked at last.
local function order_events()
  local numbers, ordered = {}, {}
  for i = 1, #told do
    numbers[i] = i
  end
  table.sort(numbers, function(one, other)
    if told_for[one] ~= told_for[other] then
      return told_for[one] < told_for[other]
    end
    return one < other
  end)
  for i, number in ipairs(numbers) do
    ordered[i] = told[number]
  end
  told = ordered
end

-- Children of jobs that have completed
local TOLD = 10  -- how many edges of one parent are too many to be looked at here

-- Lower the counts of those that depend on these jobs; answers which of these were left alone, with all their edges,
-- because a child would be released, is not counted any more, or there are too many.
local function lower_counts(ids)
  local sub, key, edges_behind, children, met = string.sub, prefix .. 'behind:', {}, {}, {}
  for i = 1, #ids do
    local found = redis.call('ZRANGEBYSCORE', key .. ids[i], OPEN, OPEN, 'LIMIT', 0, TOLD)
    for k = 1, #found do
      local child = sub(found[k], 1, -7)
      if not met[child] then
        met[child] = 0
        children[#children + 1] = child
      end
      found[k], met[child] = child, met[child] + 1
    end
    edges_behind[i] = found
  end
  local left, parents = {}, {}
  for i, were in ipairs(fetch('HMGET', children, prefix .. 'unmet')) do
    local child, jobs = children[i], tonumber(were or 0)
    left[child] = jobs > met[child] and jobs
  end
  for i = 1, #ids do
    local found = edges_behind[i]
    local is_told = #found < TOLD
    for k = 1, #found do
      is_told = is_told and left[found[k]]
    end
    if not is_told then
      parents[#parents + 1] = ids[i]
    else
      for k = 1, #found do
        left[found[k]] = left[found[k]] - 1
        unmet[found[k]] = left[found[k]]
      end
    end
  end
  return parents
end

-- What it means for others that jobs were completed plainly, all but these numbers. A child that waits for others besides
-- is told at once: its count is lowered. Parents that mean more than that go on the list, as one line.
-- A parent ends once, and when this script is over either its line is there or all its open edges are counted; nobody
-- sees the one without the other, and who dies now leaves nothing half done. A line that is on the list already may be
-- about edges of such a parent, and comes first: then all of them are listed, as they are where there are
-- sequences. New edges of this very call are no matter: their parents were looked at, and so are not plain.
local function tell_children(others)
  local is_other, ids, parents = {}, {}, {}
  for _, number in ipairs(others) do
    is_other[number] = true
  end
  for number = 1, ask.completed do
    if not is_other[number] then
      ids[#ids + 1] = ARGV[2 * number]
    end
  end
  if redis.call('EXISTS', prefix .. 'aftermaths', prefix .. 'sequence_of') == 0 then
    parents = lower_counts(ids)
  else
    for _, id in ipairs(ids) do
      if is_awaited(id) then
        parents[#parents + 1] = id
      end
    end
  end
  if #parents > 0 then
    aftermaths[#aftermaths + 1] = cmsgpack.pack({parents, 'completed'})
  end
end

local function settle_all()
  local answers, others = {}, {}
  for i, ending in ipairs(ask.ends) do
    local answer, why_not = settle_in_turn(ending, ending[E_PLACE])
    if why_not then
      return nil, nil, why_not
    end
    answers[i] = answer
    if answer == 'settled' then
      settled[#settled + 1] = ending[E_ID]
      if ending[E_COST] then
        charges[#charges + 1] = ending
      end
    end
  end
  local missed, not_plain = {}, complete_plainly(ask.completed)
  if ask.completed > #not_plain and has_edges() then
    tell_children(not_plain)
  end
  for _, number in ipairs(not_plain) do
    local id, result = ARGV[2 * number], 2 * number + 1
    local ending = {id, 1, 'completed', 'completed', 0, 0, 0, false, false, result, false, 0}
    local answer = settle_in_turn(ending, ask.places and ask.places[number])
    if answer ~= 'settled' then
      others[#others + 1] = number
      others[#others + 1] = answer
      missed[number] = true
    end
  end
  for number = 1, ask.completed do
    if not missed[number] then
      settled[#settled + 1] = ARGV[2 * number]
    end
  end
  if ask.places and #told > 1 then
    order_events()
  end
  flush()
  return answers, others
end

local taken = ask.lot_of and repeated_id()
if taken then
  return {'refused', taken}
end
-- Notes come first: a job that is settled in the same call is still running for them.
local ids = {}
for i, ending in ipairs(ask.ends) do
  ids[i] = ending[E_ID]
end
for number = 1, ask.completed do
  ids[#ids + 1] = ARGV[2 * number]
end
bring(ids)
local notes_kept, unwritable = note_all()
if unwritable then
  return {'refused', unwritable}
end
local running_before = running_of_limited()
local answers, others, why_not = settle_all()
if why_not then
  return {'refused', why_not}
end
local wanted = {}
for _, want in ipairs(ask.wants) do
  wanted[want[W_QUEUE]] = true
end
free_places(settled, wanted)
for _, ending in ipairs(charges) do
  charge(ending[E_COST], ending[E_SCOPES])
end
claim_all()
write_crowds()
keep_limits(#settled - #claimed[1], ask.wants, running_before)
return finish({
  'done', answers, others, claimed, adopted(), cancels_of(worker), next_due_ms() or false, notes_kept,
})
