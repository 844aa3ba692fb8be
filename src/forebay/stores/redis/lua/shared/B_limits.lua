-- Limits, as domain/limits.py has them: what they leave for claims. A token has `per_ms` parts.
-- A gauge is a limit and what counts under it: how many are running, or the crowd of a scope; parts and at.
-- A limit by key has changes of its rate behind it, each like a limit with the time from which it held.
local L_CONCURRENCY, L_RATE, L_PER_MS, L_BURST, L_MOST, L_PARTS, L_AT, L_SINCE, L_CHANGES = 1, 2, 3, 4, 5, 6, 7, 8, 9
local MOST_CHANGES = 20  -- and one more, whose time alone counts: from there on they are known
local MOST_BACK, MOST_LOOKS, LOOK_AGAIN_MS = 1000, 100, 1000
local limits          -- scope -> limit, those of tasks and keys among them; false where there are none
local gauges = {}     -- scope -> gauge; false for one without a limit
local is_narrow       -- whether there are limits of tasks or keys
local waits = {}      -- after how long it is worth to ask again
local is_dear         -- whether a job has started that costs another number of tokens than one
-- What jobs of the queue that is claimed from have cost beyond one each. It is taken with their number: what a free job
-- gives back before anything is taken would be lost in a full bucket.
local beyond = 0

-- Whether there are limits, or jobs behind the gates of some that there were.
local function has_limits()
  if limits == nil then
    limits = redis.call('EXISTS', prefix .. 'limits', prefix .. 'closed_queues') > 0 and {}
    local stored_limits = limits and redis.call('HGETALL', prefix .. 'limits') or {}
    for i = 1, #stored_limits, 2 do
      limits[stored_limits[i]] = cmsgpack.unpack(stored_limits[i + 1])
      is_narrow = is_narrow or string.find(stored_limits[i], '^task:') or string.find(stored_limits[i], '^key:')
    end
    -- Only the body of a job says what it costs.
    is_narrow = is_narrow or (#stored_limits > 0 and redis.call('EXISTS', prefix .. 'dear') == 1)
  end
  return limits
end

local function limit_changes(old, new)
  return changed({
    {'concurrency', old[L_CONCURRENCY], new[L_CONCURRENCY]}, {'rate', old[L_RATE], new[L_RATE]},
    {'per_ms', old[L_PER_MS], new[L_PER_MS]}, {'burst', old[L_BURST], new[L_BURST]}
  })
end

-- A bucket owes at most its burst, also where the limit was higher when it was spent.
local function filled(limit, parts, at, till)
  local most = limit[L_MOST] * limit[L_PER_MS]
  return math.min(most, math.max(-most, parts) + math.max(0, (till or now) - at) * limit[L_RATE])
end

-- What is left of a rate after a change stays left, as far as there is room for it.
local function carried(old, new, parts)
  return math.min(new[L_MOST] * new[L_PER_MS], math.floor(parts * new[L_PER_MS] / old[L_PER_MS]))
end

-- Running jobs whose lease has ended, of a queue or of all. They are few: the next sweep takes them away.
local function lapsed_in(queue)
  local lapsed = 0
  for _, holder in ipairs(redis.call('SMEMBERS', prefix .. 'holders')) do
    for _, one in ipairs(redis.call('ZRANGEBYSCORE', prefix .. 'leases:' .. holder, '-inf', now)) do
      local job = not queue or find(id_in(one))
      if job == true or (job and job.head[QUEUE] == queue) then
        lapsed = lapsed + 1
      end
    end
  end
  return lapsed
end

local function running_in(queue)
  if queue then
    return count_of(queue, 'running') - lapsed_in(queue)
  end
  local running = 0
  for _, holder in ipairs(redis.call('SMEMBERS', prefix .. 'holders')) do
    running = running + redis.call('ZCARD', prefix .. 'leases:' .. holder)
  end
  return running - lapsed_in()
end

-- What is left of the rate of one value of a key. It remembers its limit, and the limit how it was changed: so each time
-- counts by the rate of that time. Where too many changes were forgotten, the time before them counts for nothing.
local function bucket_of(limit, scope)
  local full = limit[L_MOST] * limit[L_PER_MS]
  local packed = redis.call('HGET', prefix .. 'buckets', scope)
  local old = packed and cmsgpack.unpack(packed)
  if not old or old[L_AT] < (limit[L_SINCE] or 0) then
    return full, now  -- nobody has used it, or under a limit that was removed
  end
  local parts, at, changes = old[L_PARTS], old[L_AT], limit[L_CHANGES] or {}
  for i, new in ipairs(changes) do
    if new[L_AT] >= at then
      -- A clock that was set back is before the change: what it has not reached does not count.
      local till = math.min(new[L_AT], now)
      if i > 1 or #changes <= MOST_CHANGES then
        parts = filled(old, parts, at, till)
      end
      parts, at, old = carried(old, new, parts), till, new
    end
  end
  return parts, at
end

local function limit_of(scope)
  return has_limits() and limits[string.match(scope, '^key:[^:]*') or scope]
end

-- Limits of tasks and keys count places. Nothing is looked for in the name of the scope: a job that comes has one of
-- its own nearly always.
local function narrow_gauge(scope, limit, is_by_key)
  local gauge = {limit = limit, scope = scope, crowd = crowd_of(scope), parts = limit[L_PARTS], at = limit[L_AT]}
  if is_by_key and limit[L_RATE] then
    gauge.parts, gauge.at = bucket_of(limit, scope)
  end
  gauges[scope] = gauge
  return gauge
end

-- `queue` is that of a limit of a queue.
local function gauge_of(scope, queue)
  if gauges[scope] == nil then
    local limit = limit_of(scope)
    if limit and not queue and scope ~= 'global' then
      return narrow_gauge(scope, limit, string.find(scope, '^key:'))
    end
    gauges[scope] = limit and {limit = limit, parts = limit[L_PARTS], at = limit[L_AT]} or false
    if limit and limit[L_CONCURRENCY] then
      gauges[scope].running = running_in(queue)
    end
  end
  return gauges[scope]
end

-- How many may start; nothing for any number.
local function room_of(gauge)
  local limit, room = gauge.limit, nil
  if limit[L_CONCURRENCY] then
    room = math.max(0, limit[L_CONCURRENCY] - running_under(gauge))
  end
  if limit[L_RATE] then
    local tokens = math.floor(math.max(0, filled(limit, gauge.parts, gauge.at)) / limit[L_PER_MS])
    room = room and math.min(room, tokens) or tokens
  end
  return room
end

-- Record that jobs have started, and what they cost together. A bucket may owe up to its burst, and then no job starts
-- before it has a token again. A refund is at most a burst too: the start of a dearer job took hardly more.
local function take_of(gauge, jobs, cost)
  local limit = gauge.limit
  if gauge.running then
    gauge.running = gauge.running + jobs
  end
  -- Of a clock that was set back note is taken at once, so that time counts again from there.
  if limit[L_RATE] and (cost ~= 0 or gauge.at > now) then
    local most = limit[L_MOST] * limit[L_PER_MS]
    local left = filled(limit, gauge.parts, gauge.at) - math.max(-most, cost * limit[L_PER_MS])
    gauge.parts, gauge.at = math.max(-most, math.min(most, left)), now
    gauge.has_changed = true
  end
end

-- After how long the token after so many is there.
local function wait_of(gauge, jobs)
  local limit = gauge.limit
  local missing = (jobs + 1) * limit[L_PER_MS] - filled(limit, gauge.parts, gauge.at)
  return math.max(0, math.ceil(missing / limit[L_RATE]))
end

-- When to look again behind a gate, once so many jobs were brought back.
local function look_at_of(gauge, back)
  local limit = gauge.limit
  if limit[L_RATE] and (not limit[L_CONCURRENCY] or running_under(gauge) < limit[L_CONCURRENCY]) then
    return now + math.max(1, wait_of(gauge, back))
  end
  return math.max(now + 1, gauge.crowd[C_ENDS_AT] or now + LOOK_AGAIN_MS)
end

-- How many of `most` jobs of a queue may start.
local function room_within(queue, most)
  if has_limits() then
    for _, scope in ipairs({'global', 'queue:' .. queue}) do
      local gauge = gauge_of(scope, scope ~= 'global' and queue)
      most = math.min(most, gauge and room_of(gauge) or most)
    end
  end
  return most
end

-- So many jobs of a queue have started, of as many as there was room for.
local function take_within(queue, jobs, most)
  if not has_limits() then
    return
  end
  local wait
  for _, scope in ipairs({'global', 'queue:' .. queue}) do
    local gauge = gauge_of(scope, queue)
    if gauge then
      take_of(gauge, jobs, jobs + beyond)
      if gauge.limit[L_RATE] and wait_of(gauge, 0) > 0 then
        wait = math.max(wait or 0, wait_of(gauge, 0))
      end
    end
  end
  beyond = 0
  if wait and (jobs == most or is_dear) then
    waits[#waits + 1] = wait
  end
end

-- A job has started that costs so much beyond the one that is taken with the number of all.
local function take_more(cost)
  is_dear = true
  beyond = beyond + cost
end

-- Whether jobs that cost more than a token have used up what there was room for, once so many have started.
local function is_spent(queue, jobs)
  for _, scope in ipairs({'global', 'queue:' .. queue}) do
    local gauge = is_dear and gauge_of(scope, scope ~= 'global' and queue)
    if gauge and gauge.limit[L_RATE]
      and math.floor(filled(gauge.limit, gauge.parts, gauge.at) / gauge.limit[L_PER_MS]) <= jobs + beyond then
      return true
    end
  end
end

-- An attempt has cost so much more than was taken when it started: tokens, and scopes.
local function charge(cost, scopes)
  for _, scope in ipairs(has_limits() and scopes or {}) do
    local gauge = gauge_of(scope, string.match(scope, '^queue:(.*)$'))
    if gauge then
      take_of(gauge, 0, cost)
      -- Tokens that jobs of other claims may have. Who waits behind a gate is told by the place that was freed.
      local is_broad = scope == 'global' or string.find(scope, '^queue:')
      has_news = has_news or (cost < 0 and gauge.limit[L_RATE] and is_broad and true)
    end
  end
end

-- Which of these scopes has no room.
local function full_among(scopes)
  for _, scope in ipairs(scopes) do
    local gauge = gauge_of(scope)
    if room_of(gauge) == 0 then
      look_closer(gauge)
      if room_of(gauge) == 0 then
        return scope
      end
    end
  end
end

local function close_gate(queue, scope, look_at)
  redis.call('ZADD', prefix .. 'closed:' .. queue, look_at, scope)
  redis.call('SADD', prefix .. 'closed_queues', queue)
end

-- A job that this scope has no room for waits behind its gate; one that had its turn as a job of a share waits in the lane
-- of that share.
local function put_aside(job, scope)
  local share = job.head[GATE] and string.match(job.head[GATE], '^fair:(.*)')
  lift(job)
  job.head[GATE], job.head[UPDATED_AT] = share and lane_gate(scope, share) or 'limit:' .. scope, now
  if share then
    join_lane(job.head[QUEUE], scope, share)
  end
  put(job)
  close_gate(job.head[QUEUE], scope, look_at_of(gauge_of(scope), 0))
end

-- Bring the first jobs behind a gate back to the order of their queue; answers how many.
local function bring_from(queue, scope, most)
  local back = 0
  for _, capped in ipairs({false, true}) do
    local key = ready_key(queue, 'limit:' .. scope, capped)
    local found = most > back and redis.call('ZRANGE', key, 0, most - back - 1) or {}
    for _, one in ipairs(found) do
      local job = find(id_in(one))
      back = back + 1
      if job then
        lift(job)
        job.head[GATE], job.head[UPDATED_AT] = false, now
        put(job)
      else
        remove_later(key, one)
      end
    end
  end
  flush()
  return back
end

-- Open gates that it is time to look behind, as far as there is room.
local function bring_back(queue)
  if not has_limits() then
    return
  end
  local closed, left = prefix .. 'closed:' .. queue, MOST_BACK
  for _, scope in ipairs(redis.call('ZRANGEBYSCORE', closed, '-inf', now, 'LIMIT', 0, MOST_LOOKS)) do
    local gauge = gauge_of(scope)
    if gauge then
      look_closer(gauge)
    end
    local room = gauge and room_of(gauge) or nil
    local most = math.min(room or left, left)
    -- As many with a share as without: the claim that follows compares them.
    local back = bring_from(queue, scope, most) + (has_shares() and bring_in_turn(queue, scope, most) or 0)
    left = left - math.min(left, back)
    local gate = 'limit:' .. scope
    local keys = {ready_key(queue, gate, false), ready_key(queue, gate, true), lanes_key(queue, scope)}
    if redis.call('EXISTS', unpack(keys)) == 0 then
      redis.call('ZREM', closed, scope)
    else
      close_gate(queue, scope, gauge and look_at_of(gauge, math.min(back, most)) or now)
    end
  end
  if redis.call('EXISTS', closed) == 0 then
    redis.call('SREM', prefix .. 'closed_queues', queue)
  end
end

-- Whoever claims next looks behind the gates of these scopes.
local function look_behind(fits)
  for _, queue in ipairs(redis.call('SMEMBERS', prefix .. 'closed_queues')) do
    for _, scope in ipairs(redis.call('ZRANGE', prefix .. 'closed:' .. queue, 0, -1)) do
      if fits(scope) then
        redis.call('ZADD', prefix .. 'closed:' .. queue, 0, scope)
      end
    end
  end
end

-- How many jobs run of each queue that has a limit.
local function running_of_limited()
  local running = {}
  for scope in pairs(has_limits() or {}) do
    local queue = string.match(scope, '^queue:(.*)$')
    if queue then
      running[queue] = count_of(queue, 'running')
    end
  end
  return running
end

-- Keep what is left of the rate of one value of a key, and when it will be full: then it can be forgotten.
local function keep_bucket(scope, limit, parts, at)
  local rate, per_ms, most = limit[L_RATE], limit[L_PER_MS], limit[L_MOST]
  redis.call('HSET', prefix .. 'buckets', scope, cmsgpack.pack({false, rate, per_ms, false, most, parts, at}))
  local full_at = at + math.ceil((most * per_ms - parts) / rate)
  redis.call('ZADD', prefix .. 'bucket_times', string.format('%.0f', full_at), scope)
end

-- Write what claims have taken. Where places were freed that nobody took, others may want them: `before` is what
-- `running_of_limited` has said at first.
local function keep_limits(freed, wants, before)
  if not has_limits() then
    return
  end
  for scope, gauge in pairs(gauges) do
    if gauge and gauge.has_changed then
      if string.find(scope, '^key:') then
        keep_bucket(scope, gauge.limit, gauge.parts, gauge.at)
      else
        gauge.limit[L_PARTS], gauge.limit[L_AT] = gauge.parts, gauge.at
        redis.call('HSET', prefix .. 'limits', scope, cmsgpack.pack(gauge.limit))
      end
    end
  end
  for _, want in ipairs(wants) do
    local first = redis.call('ZRANGE', prefix .. 'closed:' .. want[1], 0, 0, 'WITHSCORES')
    if first[2] then
      waits[#waits + 1] = math.max(0, tonumber(first[2]) - now)
    end
  end
  for queue, running in pairs(before) do
    has_news = has_news or count_of(queue, 'running') < running
  end
  if freed > 0 then
    has_news = true
  end
end
