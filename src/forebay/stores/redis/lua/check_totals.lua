#!lua flags=no-writes
-- check_totals: compare the counts by queue and state with the sizes of the indexes.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: late_ms
-- Returns a sentence for each difference, and for each job that was due long before the last promotion.
local problems = {}

local function compare(label, counted, stored)
  if counted ~= stored then
    problems[#problems + 1] = string.format('%s counts %.0f jobs and has %.0f', label, counted, stored)
  end
end

local function zcard(name)
  return redis.call('ZCARD', prefix .. name)
end

local running, total = 0, 0
local promoted_at = tonumber(redis.call('HGET', prefix .. 'maintenance', 'promote') or 0)
for _, name in ipairs(queue_names()) do
  local pending = zcard('ready:' .. name) + zcard('ready_capped:' .. name)
  for _, lane in ipairs(all_lanes(name)) do
    pending = pending + redis.call('ZCARD', ready_key(name, lane, false))
      + redis.call('ZCARD', ready_key(name, lane, true))
  end
  compare('queue ' .. name .. ' (pending)', count_jobs(name, 'pending'), pending)
  compare('queue ' .. name .. ' (due later)', count_jobs(name, 'scheduled', 'retrying'), zcard('delayed:' .. name))
  for _, state in ipairs({'completed', 'cancelled', 'dead'}) do
    compare('queue ' .. name .. ' (' .. state .. ')', count_jobs(name, state), zcard(state .. ':' .. name))
  end
  running = running + count_jobs(name, 'running')
  total = total + count_jobs(
    name, 'scheduled', 'blocked', 'pending', 'running', 'retrying', 'completed', 'dead', 'cancelled'
  )
  local late_before = promoted_at - request.late_ms
  local late = redis.call('ZRANGEBYSCORE', prefix .. 'delayed:' .. name, '-inf', late_before, 'LIMIT', 0, 10)
  -- Due jobs of a staggered queue may wait for any time.
  for _, entry in ipairs(load_queue(name)[Q_STAGGER_JOBS] and {} or late) do
    problems[#problems + 1] = 'job ' .. id_in(entry) .. ' was due and has not been moved'
  end
end
local leases = 0
for _, worker in ipairs(redis.call('SMEMBERS', prefix .. 'lease_holders')) do
  leases = leases + zcard('leases:' .. worker)
end
compare('the store (running)', running, leases)
compare('the store', total, redis.call('HLEN', prefix .. 'headers'))
local in_blocks = 0
for _, jobs in ipairs(redis.call('HVALS', prefix .. 'block_jobs')) do
  in_blocks = in_blocks + jobs
end
compare('the store (by seq)', in_blocks, total)
return problems
