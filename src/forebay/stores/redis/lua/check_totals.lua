#!lua flags=no-writes
-- Whether the counts by queue and state are what stands in the places for them.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: late_ms
-- Returns a sentence for each that is not, and for jobs that were due long before the last promotion.
local found = {}

local function compare(what, counts, there)
  if counts ~= there then
    found[#found + 1] = string.format('%s counts %.0f jobs and has %.0f', what, counts, there)
  end
end

local function card(name)
  return redis.call('ZCARD', prefix .. name)
end

local running, total = 0, 0
local promoted_at = tonumber(redis.call('HGET', prefix .. 'duties', 'promote') or 0)
for _, name in ipairs(queue_names()) do
  local pending = card('ready:' .. name) + card('capped:' .. name)
  for _, gate in ipairs(all_gates_of(name)) do
    pending = pending + redis.call('ZCARD', ready_key(name, gate, false))
      + redis.call('ZCARD', ready_key(name, gate, true))
  end
  compare('queue ' .. name .. ' (pending)', count_of(name, 'pending'), pending)
  compare('queue ' .. name .. ' (due later)', count_of(name, 'scheduled', 'retrying'), card('due:' .. name))
  for _, state in ipairs({'completed', 'cancelled', 'dead'}) do
    compare('queue ' .. name .. ' (' .. state .. ')', count_of(name, state), card(state .. ':' .. name))
  end
  running = running + count_of(name, 'running')
  total = total + count_of(
    name, 'scheduled', 'blocked', 'pending', 'running', 'retrying', 'completed', 'dead', 'cancelled'
  )
  local late = redis.call('ZRANGEBYSCORE', prefix .. 'due:' .. name, '-inf', promoted_at - ask.late_ms, 'LIMIT', 0, 10)
  -- In a staggered queue they may wait for as long as it takes.
  for _, one in ipairs(queue_of(name)[Q_STAGGER_JOBS] and {} or late) do
    found[#found + 1] = 'job ' .. id_in(one) .. ' was due and has not been moved'
  end
end
local leases = 0
for _, worker in ipairs(redis.call('SMEMBERS', prefix .. 'holders')) do
  leases = leases + card('leases:' .. worker)
end
compare('the store (running)', running, leases)
compare('the store', total, redis.call('HLEN', prefix .. 'heads'))
local in_blocks = 0
for _, jobs in ipairs(redis.call('HVALS', prefix .. 'block_jobs')) do
  in_blocks = in_blocks + jobs
end
compare('the store (by seq)', in_blocks, total)
return found
