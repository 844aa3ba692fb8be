-- Limits, as in `domain`: the room that they leave to claims. A token has `per_ms` parts.
-- A counter is a limit and its use: the number of running jobs or the slot list of a scope, token parts and refill
-- time.
-- A limit by key has a list of rate changes, each like a limit with the time of the change.
local L_CONCURRENCY, L_RATE, L_PER_MS, L_BURST, L_BURST_SIZE = 1, 2, 3, 4, 5
local L_PARTS, L_REFILLED_AT, L_SINCE, L_CHANGES = 6, 7, 8, 9
local MAX_CHANGES = 20  -- and one more, of which only the time counts: changes from there on are known
local MAX_UNPARKED, MAX_RECHECKS, RECHECK_MS = 1000, 100, 1000
local limit_cache  -- scope -> limit; false where there are none
local counters = {}  -- scope -> counter; false without a limit
local has_narrow_limits  -- whether there are limits of tasks or keys
local recheck_waits = {}  -- waits after which another call is worthwhile
local has_token_costs  -- whether a job has started that costs more or less than one token
-- Tokens beyond one each that jobs of the claimed queue have cost. They are spent together with the number of jobs: a
-- refund before anything is spent would be lost in a full bucket.
local extra_tokens = 0

-- Whether there are limits, or jobs parked under removed limits.
local function has_limits()
  if limit_cache == nil then
    limit_cache = redis.call('EXISTS', prefix .. 'limits', prefix .. 'limit_lane_queues') > 0 and {}
    local stored_limits = limit_cache and redis.call('HGETALL', prefix .. 'limits') or {}
    for i = 1, #stored_limits, 2 do
      limit_cache[stored_limits[i]] = cmsgpack.unpack(stored_limits[i + 1])
      local scope = stored_limits[i]
      has_narrow_limits = has_narrow_limits or string.find(scope, '^task:') or string.find(scope, '^key:')
    end
    -- Only the body of a job has its cost.
    has_narrow_limits = has_narrow_limits
      or (#stored_limits > 0 and redis.call('EXISTS', prefix .. 'has_token_costs') == 1)
  end
  return limit_cache
end

local function limit_changes(old, new)
  return changes_json({
    {'concurrency', old[L_CONCURRENCY], new[L_CONCURRENCY]}, {'rate', old[L_RATE], new[L_RATE]},
    {'per_ms', old[L_PER_MS], new[L_PER_MS]}, {'burst', old[L_BURST], new[L_BURST]}
  })
end

-- A bucket owes at most its burst, also if the limit was higher when the tokens were spent.
local function refilled_parts(limit, parts, at, until_at)
  local max_parts = limit[L_BURST_SIZE] * limit[L_PER_MS]
  return math.min(max_parts, math.max(-max_parts, parts) + math.max(0, (until_at or now) - at) * limit[L_RATE])
end

-- Parts left after a change of the limit: they stay, as far as the new burst allows.
local function converted_parts(old, new, parts)
  return math.min(new[L_BURST_SIZE] * new[L_PER_MS], math.floor(parts * new[L_PER_MS] / old[L_PER_MS]))
end

-- Running jobs of a queue, or of all, whose lease has ended. They are few: the next sweep takes them over.
local function count_expired_leases(queue)
  local expired = 0
  for _, worker in ipairs(redis.call('SMEMBERS', prefix .. 'lease_holders')) do
    for _, entry in ipairs(redis.call('ZRANGEBYSCORE', prefix .. 'leases:' .. worker, '-inf', now)) do
      local job = not queue or load_job(id_in(entry))
      if job == true or (job and job.header[QUEUE] == queue) then
        expired = expired + 1
      end
    end
  end
  return expired
end

local function count_running(queue)
  if queue then
    return count_jobs(queue, 'running') - count_expired_leases(queue)
  end
  local running = 0
  for _, worker in ipairs(redis.call('SMEMBERS', prefix .. 'lease_holders')) do
    running = running + redis.call('ZCARD', prefix .. 'leases:' .. worker)
  end
  return running - count_expired_leases()
end

-- Token bucket of one value of a key. It stores its limit, and the limit stores its changes, so each period counts by
-- the rate of that time. If too many changes were dropped, the time before them counts for nothing.
local function load_bucket(limit, scope)
  local full_parts = limit[L_BURST_SIZE] * limit[L_PER_MS]
  local packed = redis.call('HGET', prefix .. 'rate_buckets', scope)
  local old = packed and cmsgpack.unpack(packed)
  if not old or old[L_REFILLED_AT] < (limit[L_SINCE] or 0) then
    return full_parts, now  -- unused, or used under a limit that was removed
  end
  local parts, at, changes = old[L_PARTS], old[L_REFILLED_AT], limit[L_CHANGES] or {}
  for i, new in ipairs(changes) do
    if new[L_REFILLED_AT] >= at then
      -- A clock that was set back is before the change: time that it has not reached does not count.
      local until_at = math.min(new[L_REFILLED_AT], now)
      if i > 1 or #changes <= MAX_CHANGES then
        parts = refilled_parts(old, parts, at, until_at)
      end
      parts, at, old = converted_parts(old, new, parts), until_at, new
    end
  end
  return parts, at
end

local function limit_of(scope)
  return has_limits() and limit_cache[string.match(scope, '^key:[^:]*') or scope]
end

-- Limits of tasks and keys count slots. The name of the scope is not parsed here: nearly every job has a scope of its
-- own.
local function load_narrow_counter(scope, limit, is_by_key)
  local counter = {
    limit = limit, scope = scope, slots = load_slot_list(scope),
    parts = limit[L_PARTS], refilled_at = limit[L_REFILLED_AT],
  }
  if is_by_key and limit[L_RATE] then
    counter.parts, counter.refilled_at = load_bucket(limit, scope)
  end
  counters[scope] = counter
  return counter
end

-- `queue` is set for the limit of a queue.
local function load_counter(scope, queue)
  if counters[scope] == nil then
    local limit = limit_of(scope)
    if limit and not queue and scope ~= 'global' then
      return load_narrow_counter(scope, limit, string.find(scope, '^key:'))
    end
    counters[scope] = limit and {limit = limit, parts = limit[L_PARTS], refilled_at = limit[L_REFILLED_AT]} or false
    if limit and limit[L_CONCURRENCY] then
      counters[scope].running = count_running(queue)
    end
  end
  return counters[scope]
end

-- Number of jobs that may start; nil for any number.
local function room_under(counter)
  local limit, room = counter.limit, nil
  if limit[L_CONCURRENCY] then
    room = math.max(0, limit[L_CONCURRENCY] - count_under(counter))
  end
  if limit[L_RATE] then
    local tokens = math.floor(math.max(0, refilled_parts(limit, counter.parts, counter.refilled_at)) / limit[L_PER_MS])
    room = room and math.min(room, tokens) or tokens
  end
  return room
end

-- Record that jobs have started, and their total cost. A bucket may owe up to its burst, and then no job starts before
-- it has a token again. A refund is at most a burst too: the start of a dearer job took hardly more.
local function spend(counter, jobs, cost)
  local limit = counter.limit
  if counter.running then
    counter.running = counter.running + jobs
  end
  -- After the clock was set back, the time is written at once, so that refilling goes on from there.
  if limit[L_RATE] and (cost ~= 0 or counter.refilled_at > now) then
    local max_parts = limit[L_BURST_SIZE] * limit[L_PER_MS]
    local left = refilled_parts(limit, counter.parts, counter.refilled_at)
    left = left - math.max(-max_parts, cost * limit[L_PER_MS])
    counter.parts, counter.refilled_at = math.max(-max_parts, math.min(max_parts, left)), now
    counter.has_changed = true
  end
end

-- Wait until the token after so many is there.
local function token_wait_ms(counter, jobs)
  local limit = counter.limit
  local missing = (jobs + 1) * limit[L_PER_MS] - refilled_parts(limit, counter.parts, counter.refilled_at)
  return math.max(0, math.ceil(missing / limit[L_RATE]))
end

-- Time of the next check of a limit lane, once so many jobs were unparked.
local function recheck_at(counter, unparked)
  local limit = counter.limit
  if limit[L_RATE] and (not limit[L_CONCURRENCY] or count_under(counter) < limit[L_CONCURRENCY]) then
    return now + math.max(1, token_wait_ms(counter, unparked))
  end
  return math.max(now + 1, counter.slots[SLOT_ENDS_AT] or now + RECHECK_MS)
end

-- How many of `max_jobs` jobs of a queue may start.
local function room_within_limits(queue, max_jobs)
  if has_limits() then
    for _, scope in ipairs({'global', 'queue:' .. queue}) do
      local counter = load_counter(scope, scope ~= 'global' and queue)
      max_jobs = math.min(max_jobs, counter and room_under(counter) or max_jobs)
    end
  end
  return max_jobs
end

-- So many jobs of a queue have started, of `max_jobs` that had room.
local function record_started(queue, jobs, max_jobs)
  if not has_limits() then
    return
  end
  local wait
  for _, scope in ipairs({'global', 'queue:' .. queue}) do
    local counter = load_counter(scope, queue)
    if counter then
      spend(counter, jobs, jobs + extra_tokens)
      if counter.limit[L_RATE] and token_wait_ms(counter, 0) > 0 then
        wait = math.max(wait or 0, token_wait_ms(counter, 0))
      end
    end
  end
  extra_tokens = 0
  if wait and (jobs == max_jobs or has_token_costs) then
    recheck_waits[#recheck_waits + 1] = wait
  end
end

-- A job has started that costs so much beyond the one token spent for each job.
local function add_token_cost(cost)
  has_token_costs = true
  extra_tokens = extra_tokens + cost
end

-- Whether the rate is exhausted. Counts `jobs` that have started but are not recorded yet.
local function is_rate_exhausted(queue, jobs)
  for _, scope in ipairs({'global', 'queue:' .. queue}) do
    local counter = has_token_costs and load_counter(scope, scope ~= 'global' and queue)
    if counter and counter.limit[L_RATE] then
      local parts = refilled_parts(counter.limit, counter.parts, counter.refilled_at)
      if math.floor(parts / counter.limit[L_PER_MS]) <= jobs + extra_tokens then
        return true
      end
    end
  end
end

-- An attempt has cost so much more than was spent at its start: tokens, and scopes.
local function charge(cost, scopes)
  for _, scope in ipairs(has_limits() and scopes or {}) do
    local counter = load_counter(scope, string.match(scope, '^queue:(.*)$'))
    if counter then
      spend(counter, 0, cost)
      -- Refunded tokens may go to jobs of other claims. Workers of parked jobs are woken by the released slot.
      local is_broad = scope == 'global' or string.find(scope, '^queue:')
      needs_wakeup = needs_wakeup or (cost < 0 and counter.limit[L_RATE] and is_broad and true)
    end
  end
end

-- The first of these scopes that has no room.
local function first_full_scope(scopes)
  for _, scope in ipairs(scopes) do
    local counter = load_counter(scope)
    if room_under(counter) == 0 then
      check_leases(counter)
      if room_under(counter) == 0 then
        return scope
      end
    end
  end
end

local function schedule_recheck(queue, scope, at)
  redis.call('ZADD', prefix .. 'limit_lanes:' .. queue, at, scope)
  redis.call('SADD', prefix .. 'limit_lane_queues', queue)
end

-- Park a job under a full limit. A job that was served by its fairness key goes to the lane of that key.
local function park_under_limit(job, scope)
  local fairness_key = job.header[LANE] and string.match(job.header[LANE], '^fairness:(.*)')
  unindex_job(job)
  job.header[LANE] = fairness_key and limit_fairness_lane(scope, fairness_key) or 'limit:' .. scope
  job.header[UPDATED_AT] = now
  if fairness_key then
    join_limit_lane(job.header[QUEUE], scope, fairness_key)
  end
  index_job(job)
  schedule_recheck(job.header[QUEUE], scope, recheck_at(load_counter(scope), 0))
end

-- Unpark the first jobs of a limit lane into the main order of their queue; returns their number.
local function unpark_lane(queue, scope, max_jobs)
  local unparked = 0
  for _, capped in ipairs({false, true}) do
    local key = ready_key(queue, 'limit:' .. scope, capped)
    local entries = max_jobs > unparked and redis.call('ZRANGE', key, 0, max_jobs - unparked - 1) or {}
    for _, entry in ipairs(entries) do
      local job = load_job(id_in(entry))
      unparked = unparked + 1
      if job then
        unindex_job(job)
        job.header[LANE], job.header[UPDATED_AT] = false, now
        index_job(job)
      else
        defer_remove(key, entry)
      end
    end
  end
  flush()
  return unparked
end

-- Unpark jobs of due limit lanes, as far as there is room.
local function unpark_limited(queue)
  if not has_limits() then
    return
  end
  local lanes_key, room_left = prefix .. 'limit_lanes:' .. queue, MAX_UNPARKED
  for _, scope in ipairs(redis.call('ZRANGEBYSCORE', lanes_key, '-inf', now, 'LIMIT', 0, MAX_RECHECKS)) do
    local counter = load_counter(scope)
    if counter then
      check_leases(counter)
    end
    local room = counter and room_under(counter) or nil
    local max_jobs = math.min(room or room_left, room_left)
    -- As many with a fairness key as without: the claim that follows compares them.
    local unparked = unpark_lane(queue, scope, max_jobs)
    unparked = unparked + (has_fairness_keys() and unpark_fairly(queue, scope, max_jobs) or 0)
    room_left = room_left - math.min(room_left, unparked)
    local lane = 'limit:' .. scope
    local keys = {ready_key(queue, lane, false), ready_key(queue, lane, true), limit_lanes_key(queue, scope)}
    if redis.call('EXISTS', unpack(keys)) == 0 then
      redis.call('ZREM', lanes_key, scope)
    else
      schedule_recheck(queue, scope, counter and recheck_at(counter, math.min(unparked, max_jobs)) or now)
    end
  end
  if redis.call('EXISTS', lanes_key) == 0 then
    redis.call('SREM', prefix .. 'limit_lane_queues', queue)
  end
end

-- Make the next claim check the limit lanes of these scopes.
local function recheck_lanes(fits)
  for _, queue in ipairs(redis.call('SMEMBERS', prefix .. 'limit_lane_queues')) do
    for _, scope in ipairs(redis.call('ZRANGE', prefix .. 'limit_lanes:' .. queue, 0, -1)) do
      if fits(scope) then
        redis.call('ZADD', prefix .. 'limit_lanes:' .. queue, 0, scope)
      end
    end
  end
end

-- Number of running jobs of each queue with a limit.
local function count_limited_queues()
  local running = {}
  for scope in pairs(has_limits() or {}) do
    local queue = string.match(scope, '^queue:(.*)$')
    if queue then
      running[queue] = count_jobs(queue, 'running')
    end
  end
  return running
end

-- Store the token bucket of one value of a key, and the time when it will be full and can be dropped.
local function save_bucket(scope, limit, parts, at)
  local rate, per_ms, burst_size = limit[L_RATE], limit[L_PER_MS], limit[L_BURST_SIZE]
  local packed = cmsgpack.pack({false, rate, per_ms, false, burst_size, parts, at})
  redis.call('HSET', prefix .. 'rate_buckets', scope, packed)
  local full_at = at + math.ceil((burst_size * per_ms - parts) / rate)
  redis.call('ZADD', prefix .. 'rate_bucket_expiry', string.format('%.0f', full_at), scope)
end

-- Write the token buckets. If slots were released that this call did not use, wake other workers. `running_before` is the
-- first result of `count_limited_queues`.
local function save_limits(released, queue_claims, running_before)
  if not has_limits() then
    return
  end
  for scope, counter in pairs(counters) do
    if counter and counter.has_changed then
      if string.find(scope, '^key:') then
        save_bucket(scope, counter.limit, counter.parts, counter.refilled_at)
      else
        counter.limit[L_PARTS], counter.limit[L_REFILLED_AT] = counter.parts, counter.refilled_at
        redis.call('HSET', prefix .. 'limits', scope, cmsgpack.pack(counter.limit))
      end
    end
  end
  for _, queue_claim in ipairs(queue_claims) do
    local first = redis.call('ZRANGE', prefix .. 'limit_lanes:' .. queue_claim[1], 0, 0, 'WITHSCORES')
    if first[2] then
      recheck_waits[#recheck_waits + 1] = math.max(0, tonumber(first[2]) - now)
    end
  end
  for queue, running in pairs(running_before) do
    needs_wakeup = needs_wakeup or count_jobs(queue, 'running') < running
  end
  if released > 0 then
    needs_wakeup = true
  end
end
