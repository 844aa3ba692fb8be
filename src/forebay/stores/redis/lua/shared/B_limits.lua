-- Limits, as domain/limits.py has them: what they leave for claims. A token has `per_ms` parts.
-- A gauge is a limit and what counts under it: how many are running, or the crowd of a scope; parts and at.
-- A limit by key has changes of its rate behind it, each like a limit with the time from which it held.
local L_CONCURRENCY, L_RATE, L_PER_MS, L_BURST, L_BURST_SIZE, L_PARTS, L_REFILLED_AT, L_SINCE, L_CHANGES = 1, 2, 3, 4, 5, 6, 7, 8, 9
local MAX_CHANGES = 20  -- and one more, whose time alone counts: from there on they are known
local MAX_UNPARKED, MAX_RECHECKS, RECHECK_MS = 1000, 100, 1000
local limit_cache          -- scope -> limit, those of tasks and keys among them; false where there are none
local counters = {}     -- scope -> gauge; false for one without a limit
local has_narrow_limits       -- whether there are limits of tasks or keys
local recheck_waits = {}      -- after how long it is worth to ask again
local has_token_costs         -- whether a job has started that costs another number of tokens than one
-- What jobs of the queue that is claimed from have cost beyond one each. It is taken with their number: what a free job
-- gives back before anything is taken would be lost in a full bucket.
local extra_tokens = 0

-- Whether there are limits, or jobs behind the gates of some that there were.
local function has_limits()
  if limit_cache == nil then
    limit_cache = redis.call('EXISTS', prefix .. 'limits', prefix .. 'limit_lane_queues') > 0 and {}
    local stored_limits = limit_cache and redis.call('HGETALL', prefix .. 'limits') or {}
    for i = 1, #stored_limits, 2 do
      limit_cache[stored_limits[i]] = cmsgpack.unpack(stored_limits[i + 1])
      has_narrow_limits = has_narrow_limits or string.find(stored_limits[i], '^task:') or string.find(stored_limits[i], '^key:')
    end
    -- Only the body of a job says what it costs.
    has_narrow_limits = has_narrow_limits or (#stored_limits > 0 and redis.call('EXISTS', prefix .. 'has_token_costs') == 1)
  end
  return limit_cache
end

local function limit_changes(old, new)
  return changes_json({
    {'concurrency', old[L_CONCURRENCY], new[L_CONCURRENCY]}, {'rate', old[L_RATE], new[L_RATE]},
    {'per_ms', old[L_PER_MS], new[L_PER_MS]}, {'burst', old[L_BURST], new[L_BURST]}
  })
end

-- A bucket owes at most its burst, also where the limit was higher when it was spent.
local function refilled_parts(limit, parts, at, until_at)
  local max_parts = limit[L_BURST_SIZE] * limit[L_PER_MS]
  return math.min(max_parts, math.max(-max_parts, parts) + math.max(0, (until_at or now) - at) * limit[L_RATE])
end

-- What is left of a rate after a change stays left, as far as there is room for it.
local function converted_parts(old, new, parts)
  return math.min(new[L_BURST_SIZE] * new[L_PER_MS], math.floor(parts * new[L_PER_MS] / old[L_PER_MS]))
end

-- Running jobs whose lease has ended, of a queue or of all. They are few: the next sweep takes them away.
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

-- What is left of the rate of one value of a key. It remembers its limit, and the limit how it was changed: so each time
-- counts by the rate of that time. Where too many changes were forgotten, the time before them counts for nothing.
local function load_bucket(limit, scope)
  local full_parts = limit[L_BURST_SIZE] * limit[L_PER_MS]
  local packed = redis.call('HGET', prefix .. 'rate_buckets', scope)
  local old = packed and cmsgpack.unpack(packed)
  if not old or old[L_REFILLED_AT] < (limit[L_SINCE] or 0) then
    return full_parts, now  -- nobody has used it, or under a limit that was removed
  end
  local parts, at, changes = old[L_PARTS], old[L_REFILLED_AT], limit[L_CHANGES] or {}
  for i, new in ipairs(changes) do
    if new[L_REFILLED_AT] >= at then
      -- A clock that was set back is before the change: what it has not reached does not count.
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

-- Limits of tasks and keys count places. Nothing is looked for in the name of the scope: a job that comes has one of
-- its own nearly always.
local function load_narrow_counter(scope, limit, is_by_key)
  local counter = {limit = limit, scope = scope, slots = load_slot_list(scope), parts = limit[L_PARTS], refilled_at = limit[L_REFILLED_AT]}
  if is_by_key and limit[L_RATE] then
    counter.parts, counter.refilled_at = load_bucket(limit, scope)
  end
  counters[scope] = counter
  return counter
end

-- `queue` is that of a limit of a queue.
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

-- How many may start; nothing for any number.
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

-- Record that jobs have started, and what they cost together. A bucket may owe up to its burst, and then no job starts
-- before it has a token again. A refund is at most a burst too: the start of a dearer job took hardly more.
local function spend(counter, jobs, cost)
  local limit = counter.limit
  if counter.running then
    counter.running = counter.running + jobs
  end
  -- Of a clock that was set back note is taken at once, so that time counts again from there.
  if limit[L_RATE] and (cost ~= 0 or counter.refilled_at > now) then
    local max_parts = limit[L_BURST_SIZE] * limit[L_PER_MS]
    local left = refilled_parts(limit, counter.parts, counter.refilled_at) - math.max(-max_parts, cost * limit[L_PER_MS])
    counter.parts, counter.refilled_at = math.max(-max_parts, math.min(max_parts, left)), now
    counter.has_changed = true
  end
end

-- After how long the token after so many is there.
local function token_wait_ms(counter, jobs)
  local limit = counter.limit
  local missing = (jobs + 1) * limit[L_PER_MS] - refilled_parts(limit, counter.parts, counter.refilled_at)
  return math.max(0, math.ceil(missing / limit[L_RATE]))
end

-- When to look again behind a gate, once so many jobs were brought back.
local function recheck_at(counter, unparked)
  local limit = counter.limit
  if limit[L_RATE] and (not limit[L_CONCURRENCY] or count_under(counter) < limit[L_CONCURRENCY]) then
    return now + math.max(1, token_wait_ms(counter, unparked))
  end
  return math.max(now + 1, counter.slots[SLOT_ENDS_AT] or now + RECHECK_MS)
end

-- How many of `most` jobs of a queue may start.
local function room_within_limits(queue, max_jobs)
  if has_limits() then
    for _, scope in ipairs({'global', 'queue:' .. queue}) do
      local counter = load_counter(scope, scope ~= 'global' and queue)
      max_jobs = math.min(max_jobs, counter and room_under(counter) or max_jobs)
    end
  end
  return max_jobs
end

-- So many jobs of a queue have started, of as many as there was room for.
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

-- A job has started that costs so much beyond the one that is taken with the number of all.
local function add_token_cost(cost)
  has_token_costs = true
  extra_tokens = extra_tokens + cost
end

-- Whether jobs that cost more than a token have used up what there was room for, once so many have started.
local function is_rate_exhausted(queue, jobs)
  for _, scope in ipairs({'global', 'queue:' .. queue}) do
    local counter = has_token_costs and load_counter(scope, scope ~= 'global' and queue)
    if counter and counter.limit[L_RATE]
      and math.floor(refilled_parts(counter.limit, counter.parts, counter.refilled_at) / counter.limit[L_PER_MS]) <= jobs + extra_tokens then
      return true
    end
  end
end

-- An attempt has cost so much more than was taken when it started: tokens, and scopes.
local function charge(cost, scopes)
  for _, scope in ipairs(has_limits() and scopes or {}) do
    local counter = load_counter(scope, string.match(scope, '^queue:(.*)$'))
    if counter then
      spend(counter, 0, cost)
      -- Tokens that jobs of other claims may have. Who waits behind a gate is told by the place that was freed.
      local is_broad = scope == 'global' or string.find(scope, '^queue:')
      needs_wakeup = needs_wakeup or (cost < 0 and counter.limit[L_RATE] and is_broad and true)
    end
  end
end

-- Which of these scopes has no room.
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

-- A job that this scope has no room for waits behind its gate; one that had its turn as a job of a share waits in the lane
-- of that share.
local function park_under_limit(job, scope)
  local fairness_key = job.header[LANE] and string.match(job.header[LANE], '^fair:(.*)')
  unindex_job(job)
  job.header[LANE], job.header[UPDATED_AT] = fairness_key and limit_fairness_lane(scope, fairness_key) or 'limit:' .. scope, now
  if fairness_key then
    join_limit_lane(job.header[QUEUE], scope, fairness_key)
  end
  index_job(job)
  schedule_recheck(job.header[QUEUE], scope, recheck_at(load_counter(scope), 0))
end

-- Bring the first jobs behind a gate back to the order of their queue; answers how many.
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

-- Open gates that it is time to look behind, as far as there is room.
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
    -- As many with a share as without: the claim that follows compares them.
    local unparked = unpark_lane(queue, scope, max_jobs) + (has_fairness_keys() and unpark_fairly(queue, scope, max_jobs) or 0)
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

-- Whoever claims next looks behind the gates of these scopes.
local function recheck_lanes(fits)
  for _, queue in ipairs(redis.call('SMEMBERS', prefix .. 'limit_lane_queues')) do
    for _, scope in ipairs(redis.call('ZRANGE', prefix .. 'limit_lanes:' .. queue, 0, -1)) do
      if fits(scope) then
        redis.call('ZADD', prefix .. 'limit_lanes:' .. queue, 0, scope)
      end
    end
  end
end

-- How many jobs run of each queue that has a limit.
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

-- Keep what is left of the rate of one value of a key, and when it will be full: then it can be forgotten.
local function save_bucket(scope, limit, parts, at)
  local rate, per_ms, burst_size = limit[L_RATE], limit[L_PER_MS], limit[L_BURST_SIZE]
  redis.call('HSET', prefix .. 'rate_buckets', scope, cmsgpack.pack({false, rate, per_ms, false, burst_size, parts, at}))
  local full_at = at + math.ceil((burst_size * per_ms - parts) / rate)
  redis.call('ZADD', prefix .. 'rate_bucket_expiry', string.format('%.0f', full_at), scope)
end

-- Write what claims have taken. Where places were freed that nobody took, others may want them: `before` is what
-- `running_of_limited` has said at first.
local function save_limits(freed, queue_claims, running_before)
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
  if freed > 0 then
    needs_wakeup = true
  end
end
