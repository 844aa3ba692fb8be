-- Weighted fair queueing over fairness keys, as in domain/fairness.py.
local VIRTUAL_TIME_STEP = 1000000
local has_any_fairness_keys

local function virtual_time_step(queue, fairness_key)
  local weights = queue[Q_FAIRNESS_WEIGHTS]
  return math.floor(VIRTUAL_TIME_STEP / (weights and weights[fairness_key] or 1))
end

-- Whether any job ever had a fairness key; read once in a script.
local function has_fairness_keys()
  if has_any_fairness_keys == nil then
    has_any_fairness_keys = redis.call('EXISTS', prefix .. 'has_fairness_keys') == 1
  end
  return has_any_fairness_keys
end

-- Record that a job with a fairness key was inserted, pending or not.
local function record_fairness_keys()
  if not has_fairness_keys() then
    deferred_writes[#deferred_writes + 1] = function() redis.call('SET', prefix .. 'has_fairness_keys', 1) end
    has_any_fairness_keys = true
  end
end

-- A fairness key has jobs to run. A new key begins one step behind the first key. A key with jobs parked under limits
-- resumes its saved virtual time, at most a step from the first key (`resuming_virtual_time` in domain/fairness.py).
local function join_fairness_key(name, fairness_key)
  local key, step = prefix .. 'fairness_keys:' .. name, virtual_time_step(load_queue(name), fairness_key)
  local first = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  local virtual_time = tonumber(redis.call('HGET', prefix .. 'saved_virtual_times:' .. name, fairness_key) or nil)
  if not virtual_time then
    virtual_time = (first or 0) + step
  elseif first then
    virtual_time = math.max(first - step, math.min(virtual_time, first + step))
  end
  redis.call('ZADD', key, 'NX', virtual_time, fairness_key)
end

-- A fairness key has nothing to run outside of limit lanes.
local function leave_fairness_key(name, fairness_key)
  local key, saved_key = prefix .. 'fairness_keys:' .. name, prefix .. 'saved_virtual_times:' .. name
  if redis.call('HEXISTS', saved_key, fairness_key) == 1 then
    redis.call('HSET', saved_key, fairness_key, redis.call('ZSCORE', key, fairness_key) or 0)
  end
  redis.call('ZREM', key, fairness_key)
end

local function limit_lanes_key(name, scope)
  return prefix .. 'limit_lane_keys:' .. name .. '\t' .. scope
end

local function limit_fairness_lane(scope, fairness_key)
  return 'limit:' .. scope .. '\t' .. fairness_key
end

-- A job with a fairness key is parked under a limit. A new lane begins one step behind the first; the key's first such
-- lane saves its virtual time in the queue.
local function join_limit_lane(name, scope, fairness_key)
  local key = limit_lanes_key(name, scope)
  local first = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or 0)
  local virtual_time = first + virtual_time_step(load_queue(name), fairness_key)
  local is_new = redis.call('ZADD', key, 'NX', virtual_time, fairness_key) == 1
  if is_new and redis.call('HINCRBY', prefix .. 'limit_lane_counts:' .. name, fairness_key, 1) == 1 then
    local virtual_time = redis.call('ZSCORE', prefix .. 'fairness_keys:' .. name, fairness_key)
    redis.call('HSET', prefix .. 'saved_virtual_times:' .. name, fairness_key, virtual_time or 0)
  end
end

local function leave_limit_lane(name, scope, fairness_key)
  local is_gone = redis.call('ZREM', limit_lanes_key(name, scope), fairness_key) == 1
  if is_gone and redis.call('HINCRBY', prefix .. 'limit_lane_counts:' .. name, fairness_key, -1) <= 0 then
    redis.call('HDEL', prefix .. 'limit_lane_counts:' .. name, fairness_key)
    redis.call('HDEL', prefix .. 'saved_virtual_times:' .. name, fairness_key)
  end
end

-- Key and member of the nth job of a lane, counted from 0; no member behind the last one.
local function lane_member(name, lane, nth)
  local key = ready_key(name, lane, false)
  local entry = redis.call('ZRANGE', key, nth, nth)[1]
  if not entry then
    nth = nth - redis.call('ZCARD', key)
    key = ready_key(name, lane, true)
    entry = redis.call('ZRANGE', key, nth, nth)[1]
  end
  return key, entry
end

-- Unpark jobs of a limit by the virtual times of their fairness keys; returns their number. An empty lane is left only
-- after everything is written: until then it keeps the key's virtual time.
local function unpark_fairly(name, scope, max_jobs)
  local key, unparked, taken_counts, empty_lanes = limit_lanes_key(name, scope), 0, {}, 0
  while unparked < max_jobs do
    local fairness_key = redis.call('ZRANGE', key, empty_lanes, empty_lanes)[1]
    if not fairness_key then
      break
    end
    local lane = limit_fairness_lane(scope, fairness_key)
    local order_key, entry = lane_member(name, lane, taken_counts[fairness_key] or 0)
    taken_counts[fairness_key] = (taken_counts[fairness_key] or 0) + 1
    local job = entry and load_job(id_in(entry))
    if job then
      unindex_job(job)
      job.header[LANE], job.header[UPDATED_AT] = 'fairness:' .. fairness_key, now
      index_job(job)
      unparked = unparked + 1
      redis.call('ZADD', key, 'XX', 'INCR', virtual_time_step(load_queue(name), fairness_key), fairness_key)
    elseif entry then
      defer_remove(order_key, entry)
    else
      -- Sort an empty lane to the front, where `empty_lanes` skips it.
      redis.call('ZADD', key, 'XX', '-inf', fairness_key)
      empty_lanes = empty_lanes + 1
    end
  end
  flush()
  for fairness_key in pairs(taken_counts) do
    local lane = limit_fairness_lane(scope, fairness_key)
    if redis.call('EXISTS', ready_key(name, lane, false), ready_key(name, lane, true)) == 0 then
      leave_limit_lane(name, scope, fairness_key)
    end
  end
  return unparked
end

-- Load the next fairness keys of a queue, as many as the claim may take jobs. Load as many again each time that some
-- keys had no candidate. Keys loaded before stay as they are.
local function load_fair_keys(fair_scan)
  if not has_fairness_keys() then
    fair_scan.is_complete = true
    return
  end
  local queue, max_jobs = fair_scan.queue, fair_scan.limit
  fair_scan.window = fair_scan.window and 2 * fair_scan.window or max_jobs
  local key = prefix .. 'fairness_keys:' .. fair_scan.queue_name
  local rows = redis.call('ZRANGE', key, 0, fair_scan.window - 1, 'WITHSCORES')
  fair_scan.is_complete = #rows < 2 * fair_scan.window
  local width = math.ceil(2 * max_jobs / math.max(1, #rows)) + 1
  for i = 1, #rows, 2 do
    local lane, cap = 'fairness:' .. rows[i], cap_ms(queue)
    if not fair_scan.known_keys[rows[i]] then
      fair_scan.known_keys[rows[i]] = true
      fair_scan[#fair_scan + 1] = {
        name = rows[i],
        virtual_time = tonumber(rows[i + 1]),
        step = virtual_time_step(queue, rows[i]),
        width = width,
        orders = {
          {key = ready_key(fair_scan.queue_name, lane, false), base_priority = now, from = 0, at = 1, members = {}},
          {key = ready_key(fair_scan.queue_name, lane, true), base_priority = cap, from = 0, at = 1, members = {}},
        },
      }
    end
  end
end

-- The order with the best candidate among the queue's orders and those of the fairness key that is served next; and
-- that key.
local function best_fair_candidate(orders, fair_scan, max_jobs)
  while true do
    while #fair_scan < max_jobs and not fair_scan.is_complete do
      load_fair_keys(fair_scan)
    end
    if #fair_scan == 0 then
      break
    end
    local at = 1
    for i = 2, #fair_scan do
      local left, right = fair_scan[i], fair_scan[at]
      if left.virtual_time < right.virtual_time
        or (left.virtual_time == right.virtual_time and left.name < right.name) then
        at = i
      end
    end
    local fairness_key = fair_scan[at]
    local own, own_member, own_priority = best_candidate(fairness_key.orders, fairness_key.width, true)
    if own then
      local other, other_member, other_priority = best_candidate(orders, max_jobs, true)
      if other and (other_priority > own_priority
        or (other_priority == own_priority and other_member < own_member)) then
        return other, other_member
      end
      return own, own_member, fairness_key
    end
    table.remove(fair_scan, at)
    -- If the lane is empty, for example because a job's record was lost, `write_lanes` removes the key.
    local changed_lanes = lane_changes[fair_scan.queue_name] or {}
    lane_changes[fair_scan.queue_name] = changed_lanes
    changed_lanes['fairness:' .. fairness_key.name] = changed_lanes['fairness:' .. fairness_key.name] or false
  end
  local order, first_member = best_candidate(orders, max_jobs)
  return order, first_member
end

-- A job of a fairness key was claimed: advance its virtual time.
local function advance_fairness_key(name, fairness_key)
  fairness_key.virtual_time = fairness_key.virtual_time + fairness_key.step
  redis.call('ZADD', prefix .. 'fairness_keys:' .. name, 'XX', fairness_key.virtual_time, fairness_key.name)
end

-- Lane of a job that becomes pending: the one of its fairness key, or false.
local function lane_when_due(job)
  if not has_fairness_keys() then
    return false
  end
  local keys = load_options(job, 'fairness').limit_keys
  local fairness_key = keys and keys.fairness
  return fairness_key and 'fairness:' .. fairness_key or false
end
