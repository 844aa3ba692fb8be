#!lua flags=allow-oom
-- settle_and_claim: save progress, settle attempts, then claim jobs for the free slots.
-- Guarantees: nothing is written before all settlements and follow-ups are known to be possible.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: worker, updates, settlements, completed (a number), positions (of these among all settlements,
--   if there are others), claims, room, known; groups and the rest for follow-ups (see 7_insert). 2... id and packed
--   result of each job completed at its first attempt; results and steps, as the request numbers them; then id and body
--   of each follow-up
-- Returns an answer for each settlement ('settled', 'repeated' or the reason of its refusal); number and answer of each
--   completed job that was not settled; claimed jobs; rows of recovered leases; cancel requests; the wait until the
--   next job is due; an answer for each update. Claimed jobs are lists of ids, headers, bodies and lease ends, then
--   pairs of a number and the failed attempts of that job, then pairs of a number and its unstarted attempts.
local worker = request.worker
local MAX_PROMOTED = 1000
local MAX_PASSED = 2000
local LEGAL = {completed = 1, cancelled = 1, dead = 1, retrying = 1, scheduled = 1, pending = 1}

-- Progress. An update: id, attempt, progress, log lines {position, text, ...}, steps {name, argument number, ...}.
-- `true` stands for a text that cannot be encoded, which matters only to the lease holder.
local MAX_LINES, MAX_STEPS = 200, 1000

local function save_log_lines(id, lines)
  local key = prefix .. 'logs:' .. id
  local known = {}
  for _, line in ipairs(redis.call('LRANGE', key, 0, -1)) do
    known[string.match(line, '^(%d*) ')] = true
  end
  local new_lines = {}
  for i = 1, #lines, 2 do
    local number = lines[i] and string.format('%.0f', lines[i]) or ''
    -- Lines of one update are not compared with each other: one attempt produced them, in order.
    if number == '' or not known[number] then
      new_lines[#new_lines + 1] = number .. ' ' .. lines[i + 1]
    end
  end
  call_in_slices('RPUSH', key, new_lines)
  redis.call('LTRIM', key, -MAX_LINES, -1)
end

local function save_steps(id, steps)
  local key = prefix .. 'steps:' .. id
  for i = 1, #steps, 2 do
    local length = redis.call('HLEN', key)
    if length < MAX_STEPS then
      local order = string.format('%04d', length)
      redis.call('HSETNX', key, steps[i], order .. string.format('%.0f ', now) .. ARGV[steps[i + 1]])
    end
  end
end

local step_bytes = {}  -- id -> bytes of its step results; id and name of a step -> true, both with those of this call

-- Error if these steps bring the results of the job beyond the bound. A stored result is some 20 bytes longer.
local function check_step_bytes(id, steps)
  local key = prefix .. 'steps:' .. id
  if not step_bytes[id] then
    step_bytes[id] = 0
    for _, name in ipairs(redis.call('HKEYS', key)) do
      step_bytes[id] = step_bytes[id] + redis.call('HSTRLEN', key, name)
      step_bytes[id .. ' ' .. name] = true
    end
  end
  for i = 1, #steps, 2 do
    local name = id .. ' ' .. steps[i]
    if not step_bytes[name] then
      step_bytes[id] = step_bytes[id] + #ARGV[steps[i + 1]]
      step_bytes[name] = true
    end
    if step_bytes[id] > request.max_step_bytes then
      return {'StepBytes', steps[i], step_bytes[id]}
    end
  end
end

local function save_update(update)
  if update[3] then
    redis.call('SET', prefix .. 'progress:' .. update[1], string.format('%.0f ', now) .. update[3])
  end
  if #update[4] > 0 then
    save_log_lines(update[1], update[4])
  end
  if #update[5] > 0 then
    save_steps(update[1], update[5])
  end
end

local function check_updates()
  local answers = {}
  for i, update in ipairs(request.updates) do
    local reason = lease_refusal(load_job(update[1]), update[2], worker)
    answers[i] = reason or ''
    if not reason then
      for k = 1, #update[5], 2 do
        if update[5][k] == true then
          return answers, {'Unwritable', update[1]}
        end
      end
      local why_not = #update[5] > 0 and check_step_bytes(update[1], update[5])
      if why_not then
        return answers, why_not
      end
      deferred_writes[#deferred_writes + 1] = function() save_update(update) end
    end
  end
  return answers
end

-- Settlements
local E_ID, E_ATTEMPT, E_OUTCOME, E_STATE, E_FAILURES, E_CRASHES, E_DELAY_MS = 1, 2, 3, 4, 5, 6, 7
local E_REASON, E_LANE, E_RESULT, E_ERROR, E_FOLLOW_UPS, E_COST, E_SCOPES = 8, 9, 10, 11, 12, 13, 14
local E_UNSTARTED, E_POSITION = 15, 16

local STORED_OUTCOMES = {failed = 1, discarded = 1, lost = 1}  -- outcomes that add a row of failed_attempts

local outcomes_now = {}  -- id and attempt -> outcome, of rows that this call will write

-- Outcome in the row that this worker wrote about an attempt. The writer counts, not the worker that ran it: a lease
-- holder that was swept has settled nothing.
local function stored_outcome(job, attempt)
  if job.header[ERRORS] == 0 then
    return
  end
  for _, packed in ipairs(redis.call('LRANGE', prefix .. 'failed_attempts:' .. job.id, 0, -1)) do
    local attempt_row = cmsgpack.unpack(packed)
    if attempt_row[1] == attempt and attempt_row[7] == worker then
      return attempt_row[2]
    end
  end
  return outcomes_now[job.id .. ' ' .. attempt]
end

-- Whether this worker has settled this very attempt with the same outcome; `is_same_end` in domain/settlement.py has
-- the reasons.
local function is_repeated(job, attempt, outcome, delay_ms)
  local header = job.header
  local stored = stored_outcome(job, attempt)
  if stored or STORED_OUTCOMES[outcome] then
    return stored == outcome
  end
  local state = header[STATE]
  local is_newest = header[ATTEMPT] == attempt and header[WORKER] == worker and state ~= 'running'
  if not is_newest then
    return false
  end
  if outcome == 'completed' or state == 'completed' then
    return outcome == state
  end
  if state == 'pending' and outcome == 'snoozed' then
    return header[RUN_AT] < header[UPDATED_AT] and header[RUN_AT] >= header[STARTED_AT] + delay_ms
  end
  return state ~= 'scheduled' or outcome == 'snoozed'
end

local function save_failed_attempt(job, settlement)
  local header = job.header
  header[ERRORS] = header[ERRORS] + 1
  outcomes_now[job.id .. ' ' .. header[ATTEMPT]] = settlement[E_OUTCOME]
  local attempt_row = {
    header[ATTEMPT], settlement[E_OUTCOME], header[SWEPT_FROM] or worker, header[STARTED_AT], now,
    settlement[E_ERROR], worker,
  }
  deferred_writes[#deferred_writes + 1] = function()
    redis.call('RPUSH', prefix .. 'failed_attempts:' .. job.id, cmsgpack.pack(attempt_row))
  end
end

local function return_to_queue(job, settlement)
  local header = job.header
  local state = settlement[E_STATE]
  unindex_job(job)
  header[STATE] = state
  header[RUN_AT] = now + (state == 'pending' and 0 or settlement[E_DELAY_MS])
  header[LANE], header[SWEPT_FROM], header[RESCORE_AT], header[UPDATED_AT] = settlement[E_LANE], false, false, now
  if header[LANE] then
    local reason = settlement[E_REASON]
    local detail = reason and reason ~= '' and header[LANE] .. ': ' .. reason or header[LANE]
    add_event('parked', job, header[WORKER], header[ATTEMPT], detail)
  end
  if state == 'pending' then
    index_pending(job)
  else
    index_job(job)
  end
end

local function finish_attempt(job, settlement)
  local header = job.header
  local state = settlement[E_STATE]
  if settlement[E_ERROR] then
    save_failed_attempt(job, settlement)
  end
  header[FAILURES], header[CRASHES] = settlement[E_FAILURES], settlement[E_CRASHES]
  if settlement[E_UNSTARTED] then
    deferred_writes[#deferred_writes + 1] = function()
      redis.call('HSET', prefix .. 'unstarted', job.id, settlement[E_UNSTARTED])
    end
  end
  if FINAL[state] then
    local reason = settlement[E_REASON]
    if state == 'cancelled' and not reason then
      reason = 'cancelled'
    end
    finish_job(job, state, reason, cmsgpack.unpack(ARGV[settlement[E_RESULT]]))
  elseif header[CANCEL_REASON] then
    finish_job(job, 'cancelled', header[CANCEL_REASON], false)
  else
    return_to_queue(job, settlement)
  end
end

local follow_ups_seen = 0

-- Store the follow-ups that a task returned; returns the error of the first that cannot be stored.
local function store_follow_ups(job, settlement)
  local queue, attempt = job.header[QUEUE], settlement[E_ATTEMPT]
  for _ = 1, settlement[E_FOLLOW_UPS] do
    follow_ups_seen = follow_ups_seen + 1
    local insert_result, why_not = accept_job(follow_ups_seen, 'return', true)
    if why_not then
      return why_not
    end
    if insert_result[2] == 0 then
      local detail = request.groups[request.group_of[follow_ups_seen]][2] .. ': key taken by ' .. insert_result[1]
      new_events[#new_events + 1] = {'follow_up_skipped', now, job.id, queue, attempt, worker, detail}
    end
  end
end

local function settle(settlement)
  local job = load_job(settlement[E_ID])
  local reason = lease_refusal(job, settlement[E_ATTEMPT], worker)
  if not reason then
    if not LEGAL[settlement[E_STATE]] then
      return nil, {'IllegalTransition', settlement[E_STATE]}
    end
    if settlement[E_ERROR] == true or settlement[E_REASON] == true or settlement[E_LANE] == true then
      return nil, {'Unwritable', settlement[E_ID]}
    end
    finish_attempt(job, settlement)
    local why_not = store_follow_ups(job, settlement)
    if why_not and why_not[1] ~= 'PropagationPending' then
      why_not = {'StoreRefused', job.id, why_not}
    end
    return 'settled', why_not
  end
  follow_ups_seen = follow_ups_seen + settlement[E_FOLLOW_UPS]
  if job and is_repeated(job, settlement[E_ATTEMPT], settlement[E_OUTCOME], settlement[E_DELAY_MS]) then
    return 'repeated'
  end
  if job then
    add_event('refused', job, worker, settlement[E_ATTEMPT], settlement[E_OUTCOME] .. ': ' .. reason)
  end
  return reason
end

-- Claims
-- Lists of ids, headers, body keys, lease ends; number and failed attempts; number and unstarted attempts.
local claimed = {{}, {}, {}, {}, {}, {}}

local function start_job(job, queue, lease_ms)
  local header = job.header
  if header[UNTIL_STARTED] then
    free_unique(job)
  end
  unindex_job(job)
  header[STATE], header[LANE], header[RESCORE_AT], header[SWEPT_FROM] = 'running', false, false, false
  header[ATTEMPT], header[WORKER] = header[ATTEMPT] + 1, worker
  header[STARTED_AT], header[UPDATED_AT] = now, now
  job.lease_expires_at = now + (lease_ms or header[LEASE_MS] or queue[Q_LEASE_MS])
  index_job(job)
end

local function park(job, lane)
  unindex_job(job)
  job.header[LANE], job.header[UPDATED_AT] = lane, now
  index_job(job)
  add_event('parked', job, worker, false, lane)
end

local function claim_job(job, queue, lease_ms)
  start_job(job, queue, lease_ms)
  local number = #claimed[1] + 1
  claimed[1][number], claimed[2][number] = job.id, job.packed
  claimed[3][number], claimed[4][number] = body_key(job.header[SEQ]), job.lease_expires_at
  if job.header[ERRORS] > 0 then
    table.insert(claimed[5], {number, last_errors(job)})
  end
  -- An attempt that never began was claimed before this one.
  local unstarted = job.header[ATTEMPT] > 1 and redis.call('HGET', prefix .. 'unstarted', job.id)
  if unstarted then
    table.insert(claimed[6], {number, tonumber(unstarted)})
  end
end

-- Claim or park a job. Returns whether it was parked; nothing if no more jobs may be parked.
local function claim_or_park(job, queue, queue_claim, allowed_lanes, may_park)
  local lane = 'task:' .. job.header[TASK]
  -- An expired job is left to the next call, which expires as many again.
  if job.header[EXPIRES_AT] and job.header[EXPIRES_AT] <= now then
    return false
  end
  if not allowed_lanes or allowed_lanes[lane] then
    local scopes, cost = {}, 1
    if has_narrow_limits then
      scopes, cost = narrow_scopes(lane, redis.call('GET', body_key(job.header[SEQ])) or '')
    end
    local full_scope = first_full_scope(scopes)
    if not full_scope then
      claim_job(job, queue, queue_claim[CLAIM_LEASE_MS])
      take_slots(job.id, job.lease_expires_at, scopes, cost)
      if cost ~= 1 then
        add_token_cost(cost - 1)
      end
      return false
    end
    if may_park then
      park_under_limit(job, full_scope)
      return true
    end
  elseif may_park then
    park(job, lane)
    return true
  end
end

local function claim_queue(queue_claim, max_jobs)
  local queue = load_queue(queue_claim[CLAIM_QUEUE])
  if max_jobs <= 0 or not queue or (queue[Q_STATE] ~= 'active' and queue[Q_STATE] ~= 'draining') then
    return
  end
  local allowed_lanes = claimable_lanes(queue_claim)
  local orders = claim_orders(queue_claim[CLAIM_QUEUE], queue, queue_lanes(queue_claim[CLAIM_QUEUE], allowed_lanes))
  local fair_scan = {queue_name = queue_claim[CLAIM_QUEUE], queue = queue, limit = max_jobs, known_keys = {}}
  local lease_ms = {queue_claim[CLAIM_LEASE_MS], queue[Q_LEASE_MS]}
  local last_number, parked, max_parked = #claimed[1] + max_jobs, 0, queue_claim[CLAIM_MAX_PARKED]
  for _ = 1, max_jobs + max_parked + MAX_PASSED do
    local room = last_number - #claimed[1]
    local order, entry, fairness_key
    if room > 0 and not is_rate_exhausted(queue_claim[CLAIM_QUEUE], max_jobs - room) then
      order, entry, fairness_key = best_fair_candidate(orders, fair_scan, max_jobs)
    end
    if not order then
      break
    end
    -- After a job that costs more than one token, the rate is checked for each job.
    local width = #orders == 1 and #fair_scan == 0 and not has_token_costs and room or 1
    if has_narrow_limits then
      prefetch_bodies(order, room)
    end
    local fits = has_narrow_limits and try_take_slot
    if fairness_key or start_fast(order, width, lease_ms, allowed_lanes, claimed, fits) == 0 then
      local job = load_job(id_in(entry))
      local was_parked = job and claim_or_park(job, queue, queue_claim, allowed_lanes, parked < max_parked)
      if job and was_parked == nil then
        recheck_waits[#recheck_waits + 1] = 0  -- enough for this call; the next one goes on
        break
      end
      parked = parked + (was_parked and 1 or 0)
      if fairness_key and last_number - #claimed[1] < room then
        advance_fairness_key(queue_claim[CLAIM_QUEUE], fairness_key)
      end
      order.at = order.at + 1
      if not job then
        defer_remove(order.key, entry)
      end
    end
  end
end

local function claim_all()
  if #request.claims > 0 then
    expire_jobs(MAX_PROMOTED)
  end
  for _, queue_claim in ipairs(request.claims) do
    promote_queue(queue_claim[CLAIM_QUEUE], MAX_PROMOTED)
    -- Also for a queue that gives no jobs: a limit lane that stays due would make the worker call again at once.
    unpark_limited(queue_claim[CLAIM_QUEUE])
    local claimed_before = #claimed[1]
    local max_jobs = math.min(queue_claim[CLAIM_LIMIT], request.room - claimed_before)
    max_jobs = room_within_limits(queue_claim[CLAIM_QUEUE], max_jobs)
    claim_queue(queue_claim, max_jobs)
    record_started(queue_claim[CLAIM_QUEUE], #claimed[1] - claimed_before, max_jobs)
    flush()
  end
  if #claimed[1] > 0 then
    new_lease_holders[worker] = true
  end
  claimed[3] = limit_payloads(load_bodies(claimed[3]))
end

local function recovered_jobs()
  if not request.known then
    return {}
  end
  local known, jobs = {}, {}
  for _, lease in ipairs(request.known) do
    known[lease[1] .. ' ' .. lease[2]] = true
  end
  for _, id in ipairs(claimed[1]) do
    known[id .. ' ' .. load_job(id).header[ATTEMPT]] = true
  end
  local ids = ids_in(redis.call('ZRANGE', prefix .. 'leases:' .. worker, 0, -1))
  table.sort(ids)
  load_jobs(ids)
  for _, id in ipairs(ids) do
    local job = load_job(id)
    if job and not known[id .. ' ' .. job.header[ATTEMPT]] then
      jobs[#jobs + 1] = job
    end
  end
  return job_rows(jobs)
end

local function next_due_ms()
  local first
  for _, queue_claim in ipairs(request.claims) do
    local due = redis.call('ZRANGE', prefix .. 'delayed:' .. queue_claim[CLAIM_QUEUE], 0, 0, 'WITHSCORES')
    local at = tonumber(due[2])
    local queue = at and load_queue(queue_claim[CLAIM_QUEUE])
    if queue and queue[Q_STAGGER_JOBS] then
      local task = 'promote ' .. queue_claim[CLAIM_QUEUE]
      at = math.max(at, tonumber(redis.call('HGET', prefix .. 'maintenance', task) or 0))
    end
    if at and (not first or at < first) then
      first = at
    end
  end
  first = first and math.max(0, first - now)
  for _, wait in ipairs(recheck_waits) do
    first = first and math.min(first, wait) or wait
  end
  return first
end

-- Ids of settled jobs.
local settled_ids = {}
local charges = {}  -- settlements of attempts that cost more or less than one token
local event_positions = {}  -- number of an event -> position of its settlement

local function settle_at(settlement, position)
  local before = #new_events
  local answer, why_not = settle(settlement)
  -- If a job was indexed and is unindexed again, `flush` has written all earlier events.
  for i = #new_events < before and 1 or before + 1, #new_events do
    event_positions[i] = position
  end
  return answer, why_not
end

-- Sort events by the order of their settlements, though completions are settled last.
local function order_events()
  local numbers, ordered = {}, {}
  for i = 1, #new_events do
    numbers[i] = i
  end
  table.sort(numbers, function(left, right)
    if event_positions[left] ~= event_positions[right] then
      return event_positions[left] < event_positions[right]
    end
    return left < right
  end)
  for i, number in ipairs(numbers) do
    ordered[i] = new_events[number]
  end
  new_events = ordered
end

-- Children of completed jobs
local MAX_CHILDREN = 10  -- edges of one parent from which on its end is left to the outbox

-- Decrement the unmet counts of the children of these jobs. Returns the parents that were left alone with all their
-- edges, because a child would be released or is not counted any more, or because they have too many edges.
local function decrement_unmet(ids)
  local sub, key, open_edges, children, met_counts = string.sub, prefix .. 'children:', {}, {}, {}
  for i = 1, #ids do
    local names = redis.call('ZRANGEBYSCORE', key .. ids[i], OPEN, OPEN, 'LIMIT', 0, MAX_CHILDREN)
    for k = 1, #names do
      local child = sub(names[k], 1, -7)
      if not met_counts[child] then
        met_counts[child] = 0
        children[#children + 1] = child
      end
      names[k], met_counts[child] = child, met_counts[child] + 1
    end
    open_edges[i] = names
  end
  local remaining, deferred = {}, {}
  for i, stored_count in ipairs(fetch('HMGET', children, prefix .. 'unmet')) do
    local child, unmet_edges = children[i], tonumber(stored_count or 0)
    remaining[child] = unmet_edges > met_counts[child] and unmet_edges
  end
  for i = 1, #ids do
    local names = open_edges[i]
    local is_resolved = #names < MAX_CHILDREN
    for k = 1, #names do
      is_resolved = is_resolved and remaining[names[k]]
    end
    if not is_resolved then
      deferred[#deferred + 1] = ids[i]
    else
      for k = 1, #names do
        remaining[names[k]] = remaining[names[k]] - 1
        unmet_changes[names[k]] = remaining[names[k]]
      end
    end
  end
  return deferred
end

-- Resolve completions of the fast path inline, all but these numbers. A child that waits for other parents besides is
-- resolved at once: its unmet count is decremented. Parents that would release a child go to the outbox, as one entry.
-- A parent ends once. When this script is over, either its entry exists or all its open edges are counted. Scripts are
-- atomic, so no other client sees half of that, and a crash leaves nothing half done.
-- An older outbox entry may concern edges of such a parent, and comes first. So all parents go to the outbox if it is
-- not empty, or if there are sequences. New edges of this call do not matter: their parents were loaded, and so left
-- the fast path.
local function resolve_inline(excluded)
  local is_excluded, ids, parents = {}, {}, {}
  for _, number in ipairs(excluded) do
    is_excluded[number] = true
  end
  for number = 1, request.completed do
    if not is_excluded[number] then
      ids[#ids + 1] = ARGV[2 * number]
    end
  end
  if redis.call('EXISTS', prefix .. 'dependency_outbox', prefix .. 'job_sequence') == 0 then
    parents = decrement_unmet(ids)
  else
    for _, id in ipairs(ids) do
      if has_dependants(id) then
        parents[#parents + 1] = id
      end
    end
  end
  if #parents > 0 then
    outbox_entries[#outbox_entries + 1] = cmsgpack.pack({parents, 'completed'})
  end
end

local function settle_all()
  local answers, others = {}, {}
  for i, settlement in ipairs(request.settlements) do
    local answer, why_not = settle_at(settlement, settlement[E_POSITION])
    if why_not then
      return nil, nil, why_not
    end
    answers[i] = answer
    if answer == 'settled' then
      settled_ids[#settled_ids + 1] = settlement[E_ID]
      if settlement[E_COST] then
        charges[#charges + 1] = settlement
      end
    end
  end
  local not_settled, slow_numbers = {}, complete_fast(request.completed)
  if request.completed > #slow_numbers and has_dependencies() then
    resolve_inline(slow_numbers)
  end
  for _, number in ipairs(slow_numbers) do
    local id, result = ARGV[2 * number], 2 * number + 1
    local settlement = {id, 1, 'completed', 'completed', 0, 0, 0, false, false, result, false, 0}
    local answer = settle_at(settlement, request.positions and request.positions[number])
    if answer ~= 'settled' then
      others[#others + 1] = number
      others[#others + 1] = answer
      not_settled[number] = true
    end
  end
  for number = 1, request.completed do
    if not not_settled[number] then
      settled_ids[#settled_ids + 1] = ARGV[2 * number]
    end
  end
  if request.positions and #new_events > 1 then
    order_events()
  end
  flush()
  return answers, others
end

local repeated = request.group_of and find_repeated_id()
if repeated then
  return {'refused', repeated}
end
-- Progress comes first: a job that is settled in the same call still counts as running.
local ids = {}
for i, settlement in ipairs(request.settlements) do
  ids[i] = settlement[E_ID]
end
for number = 1, request.completed do
  ids[#ids + 1] = ARGV[2 * number]
end
prefetch_headers(ids)
local update_replies, unwritable = check_updates()
if unwritable then
  return {'refused', unwritable}
end
local running_before = count_limited_queues()
local answers, others, refusal = settle_all()
if refusal then
  return {'refused', refusal}
end
local claimed_queues = {}
for _, queue_claim in ipairs(request.claims) do
  claimed_queues[queue_claim[CLAIM_QUEUE]] = true
end
free_slots(settled_ids, claimed_queues)
for _, settlement in ipairs(charges) do
  charge(settlement[E_COST], settlement[E_SCOPES])
end
claim_all()
write_slots()
save_limits(#settled_ids - #claimed[1], request.claims, running_before)
return finish({
  'done', answers, others, claimed, recovered_jobs(), pending_cancels(worker), next_due_ms() or false, update_replies,
})
