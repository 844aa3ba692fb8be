-- Limits, as domain/limits.py has them: what they leave for claims. A token has `per_ms` parts.
local L_CONCURRENCY, L_RATE, L_PER_MS, L_BURST, L_MOST, L_PARTS, L_AT = 1, 2, 3, 4, 5, 6, 7
local gauges          -- scope -> limit, with the jobs that run under it; false where there is none at all
local waits = {}      -- after how long a rate lets somebody in

local function filled(limit)
  local passed = math.max(0, now - limit[L_AT])
  return math.min(limit[L_MOST] * limit[L_PER_MS], limit[L_PARTS] + passed * limit[L_RATE])
end

-- Running jobs whose lease has ended, of a queue or of all. They are few: the next sweep takes them away.
local function lapsed_in(queue)
  local lapsed = 0
  for _, holder in ipairs(redis.call('SMEMBERS', prefix .. 'holders')) do
    local ended = redis.call('ZRANGEBYSCORE', prefix .. 'leases:' .. holder, '-inf', now)
    if queue and #ended > 0 then
      local ids = {}
      for i, one in ipairs(ended) do
        ids[i] = id_in(one)
      end
      load(ids)
      for _, id in ipairs(ids) do
        if loaded[id] and loaded[id].head[QUEUE] == queue then
          lapsed = lapsed + 1
        end
      end
    else
      lapsed = lapsed + #ended
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

local function gauge_of(scope, queue)
  if gauges == nil then
    gauges = redis.call('EXISTS', prefix .. 'limits') == 1 and {}
  end
  if not gauges then
    return
  end
  if gauges[scope] == nil then
    local packed = redis.call('HGET', prefix .. 'limits', scope)
    gauges[scope] = packed and cmsgpack.unpack(packed)
    if packed and gauges[scope][L_CONCURRENCY] then
      gauges[scope].running = running_in(queue)
    end
  end
  return gauges[scope]
end

-- How many of `most` jobs of a queue may start.
local function room_within(queue, most)
  for _, limit in ipairs({gauge_of('global') or {}, gauge_of('queue:' .. queue, queue) or {}}) do
    if limit[L_CONCURRENCY] then
      most = math.min(most, math.max(0, limit[L_CONCURRENCY] - limit.running))
    end
    if limit[L_RATE] then
      most = math.min(most, math.floor(math.max(0, filled(limit)) / limit[L_PER_MS]))
    end
  end
  return most
end

-- So many jobs of a queue have started, of as many as there was room for.
local function take_within(queue, jobs, most)
  local wait
  for _, scope in ipairs({'global', 'queue:' .. queue}) do
    local limit = gauge_of(scope, queue)
    if limit and limit[L_CONCURRENCY] then
      limit.running = limit.running + jobs
    end
    if limit and limit[L_RATE] then
      -- Of a clock that was set back note is taken at once, so that time counts again from there.
      if jobs > 0 or limit[L_AT] > now then
        limit[L_PARTS], limit[L_AT] = filled(limit) - jobs * limit[L_PER_MS], now
        limit.has_changed = true
      end
      local missing = limit[L_PER_MS] - filled(limit)
      if missing > 0 then
        wait = math.max(wait or 0, math.ceil(missing / limit[L_RATE]))
      end
    end
  end
  if wait and jobs == most then
    waits[#waits + 1] = wait
  end
end

-- Write what claims have taken. Where places were freed that nobody took, others may want them.
local function keep_limits(freed)
  for scope, limit in pairs(gauges or {}) do
    if limit and limit.has_changed then
      redis.call('HSET', prefix .. 'limits', scope, cmsgpack.pack({unpack(limit, 1, L_AT)}))
    end
  end
  if freed > 0 and redis.call('EXISTS', prefix .. 'limits') == 1 then
    has_news = true
  end
end
