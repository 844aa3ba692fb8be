-- Shares, as domain/fairness.py has them: whose turn it is.
local VIRTUAL_TIME_STEP = 1000000
local has_any_fairness_keys

local function virtual_time_step(queue, fairness_key)
  local weights = queue[Q_FAIRNESS_WEIGHTS]
  return math.floor(VIRTUAL_TIME_STEP / (weights and weights[fairness_key] or 1))
end

-- Whether any job ever had a share; asked once in a script.
local function has_fairness_keys()
  if has_any_fairness_keys == nil then
    has_any_fairness_keys = redis.call('EXISTS', prefix .. 'has_fairness_keys') == 1
  end
  return has_any_fairness_keys
end

-- A job with a share was accepted, be it pending or not.
local function record_fairness_keys()
  if not has_fairness_keys() then
    deferred_writes[#deferred_writes + 1] = function() redis.call('SET', prefix .. 'has_fairness_keys', 1) end
    has_any_fairness_keys = true
  end
end

-- A share has something to run. One that had nothing begins a step behind the first; one with lanes behind limits goes on
-- from the turn that was kept for it, at most a step from the first (`resuming` in domain/fairness.py).
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

-- A share has nothing to run outside of its lanes.
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

-- A job of a share waits behind a limit. A new lane begins a step behind the first; with the first lane of a share its turn in
-- the queue is kept.
local function join_limit_lane(name, scope, fairness_key)
  local key = limit_lanes_key(name, scope)
  local first = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or 0)
  local is_new = redis.call('ZADD', key, 'NX', first + virtual_time_step(load_queue(name), fairness_key), fairness_key) == 1
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

-- The key and the member of a job of a lane, the how many-th counts from 0; nothing behind the last one.
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

-- Let jobs leave their lanes by the turns of shares and wait for these in the queue again; answers how many.
-- A lane that runs dry is left only when all is written: till then it keeps the turn of its share.
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
      job.header[LANE], job.header[UPDATED_AT] = 'fair:' .. fairness_key, now
      index_job(job)
      unparked = unparked + 1
      redis.call('ZADD', key, 'XX', 'INCR', virtual_time_step(load_queue(name), fairness_key), fairness_key)
    elseif entry then
      defer_remove(order_key, entry)
    else
      -- In front of all others, where it is passed over.
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

-- Look at the shares of a queue that are next, as many as a claim may take jobs; and at as many again each time, where some
-- had nothing to give. Those that were seen before stay as they are.
local function load_fair_keys(fair_scan)
  if not has_fairness_keys() then
    fair_scan.is_complete = true
    return
  end
  local queue, max_jobs = fair_scan.queue, fair_scan.limit
  fair_scan.window = fair_scan.window and 2 * fair_scan.window or max_jobs
  local found = redis.call('ZRANGE', prefix .. 'fairness_keys:' .. fair_scan.queue_name, 0, fair_scan.window - 1, 'WITHSCORES')
  fair_scan.is_complete = #found < 2 * fair_scan.window
  local width = math.ceil(2 * max_jobs / math.max(1, #found)) + 1
  for i = 1, #found, 2 do
    local lane, cap = 'fair:' .. found[i], cap_ms(queue)
    if not fair_scan.known_keys[found[i]] then
      fair_scan.known_keys[found[i]] = true
      fair_scan[#fair_scan + 1] = {
        name = found[i],
        virtual_time = tonumber(found[i + 1]),
        step = virtual_time_step(queue, found[i]),
        width = width,
        orders = {
          {key = ready_key(fair_scan.queue_name, lane, false), base_priority = now, from = 0, at = 1, members = {}},
          {key = ready_key(fair_scan.queue_name, lane, true), base_priority = cap, from = 0, at = 1, members = {}},
        },
      }
    end
  end
end

-- The order whose first job is next, be it one of the queue or of the share whose turn it is; and that share.
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
      if fair_scan[i].virtual_time < fair_scan[at].virtual_time or (fair_scan[i].virtual_time == fair_scan[at].virtual_time and fair_scan[i].name < fair_scan[at].name) then
        at = i
      end
    end
    local fairness_key = fair_scan[at]
    local own, own_member, own_priority = best_candidate(fairness_key.orders, fairness_key.width, true)
    if own then
      local other, other_member, other_priority = best_candidate(orders, max_jobs, true)
      if other and (other_priority > own_priority or (other_priority == own_priority and other_member < own_member)) then
        return other, other_member
      end
      return own, own_member, fairness_key
    end
    table.remove(fair_scan, at)
    -- If there is nothing behind its gate at all, as where the record of a job was lost, it is forgotten with the others.
    local changed_lanes = lane_changes[fair_scan.queue_name] or {}
    lane_changes[fair_scan.queue_name] = changed_lanes
    changed_lanes['fair:' .. fairness_key.name] = changed_lanes['fair:' .. fairness_key.name] or false
  end
  local order, first_member = best_candidate(orders, max_jobs)
  return order, first_member
end

-- A job of a share was taken: others are next.
local function advance_fairness_key(name, fairness_key)
  fairness_key.virtual_time = fairness_key.virtual_time + fairness_key.step
  redis.call('ZADD', prefix .. 'fairness_keys:' .. name, 'XX', fairness_key.virtual_time, fairness_key.name)
end

-- Where a job waits that becomes due: one of a share waits for its turn.
local function lane_when_due(job)
  if not has_fairness_keys() then
    return false
  end
  local keys = load_options(job, 'share').limit_keys
  local fairness_key = keys and keys.share
  return fairness_key and 'fair:' .. fairness_key or false
end
