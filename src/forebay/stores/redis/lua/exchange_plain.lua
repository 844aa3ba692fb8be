#!lua flags=allow-oom
-- Settle completions of first attempts and claim plain jobs, where there is nothing else to look at: what workers
-- ask for nearly always. It does what `exchange` does, with a quarter of its functions and commands.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: worker, completed (how many), wants (one for each queue), room.  2... id and packed result of
--       each job that was completed at its first attempt
-- Returns claimed jobs as `exchange` does, the wait until the next job is due, and 1 if `exchange` has to look at the
-- next one. Or 0 where all of it is left to `exchange`, and nothing was written.
local special = {
  prefix .. 'edge_count', prefix .. 'sequence_of', prefix .. 'limits', prefix .. 'closed_queues', prefix .. 'places', prefix .. 'wishes',
  prefix .. 'expiring',
}
local names, finished, claimed = {}, {}, {{}, {}, {}, {}, {}}
for i, want in ipairs(ask.wants) do
  names[i] = want[W_QUEUE]
  special[#special + 1] = prefix .. 'gates:' .. want[W_QUEUE]
  special[#special + 1] = prefix .. 'capped:' .. want[W_QUEUE]
  special[#special + 1] = prefix .. 'shares:' .. want[W_QUEUE]
end
if redis.call('EXISTS', unpack(special)) > 0 then
  return 0
end

for number = 1, ask.completed do
  finished[number] = ARGV[2 * number]
end
bring(finished)
if #complete_plainly(ask.completed) > 0 then
  return 0
end

local next_due_at
local has_more = 0
local taken = {}
local packed_queues = fetch('HMGET', names, prefix .. 'queues')
for i, want in ipairs(ask.wants) do
  local due = redis.call('ZRANGE', prefix .. 'due:' .. names[i], 0, 0, 'WITHSCORES')
  local due_at = tonumber(due[2])
  if due_at and due_at <= now then
    return 0
  end
  next_due_at = due_at and math.min(due_at, next_due_at or due_at) or next_due_at
  local queue = packed_queues[i] and cmsgpack.unpack(packed_queues[i])
  local most = math.min(want[W_MOST], ask.room - #claimed[1])
  if has_more == 0 and most > 0 and queue and (queue[Q_STATE] == 'active' or queue[Q_STATE] == 'draining') then
    local order = {key = ready_key(names[i], false, false), at = 1}
    order.members = redis.call('ZRANGE', order.key, 0, most - 1)
    bring(ids_in(order.members))
    taken[order.key] = start_plainly(order, most, {want[W_LEASE_MS], queue[Q_LEASE_MS]}, gates_passed(want), claimed)
    -- They are the first of their order, and one command takes them out whatever their number.
    removals[order.key] = nil
    has_more = order.at <= #order.members and 1 or 0
  end
end

send('HSET', prefix .. 'heads', heads)
for key, jobs in pairs(taken) do
  if jobs > 0 then
    redis.call('ZREMRANGEBYRANK', key, 0, jobs - 1)
  end
end
write_places()
if #claimed[1] > 0 then
  redis.call('SADD', prefix .. 'holders', ask.worker)
end
claimed[3] = within_bytes(fetch('MGET', claimed[3]))
return {claimed, next_due_at and next_due_at - now or false, has_more}
