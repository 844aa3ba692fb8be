#!lua flags=allow-oom
-- settle_and_claim_fast: settle completions of first attempts and claim jobs, where nothing else can be involved:
-- nearly every call of a worker. Does the same as `settle_and_claim` with a quarter of its functions and commands.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: worker, completed (a number), claims (one for each queue), room. 2... id and packed result of
--   each job completed at its first attempt
-- Returns claimed jobs as `settle_and_claim` does, the wait until the next job is due, and 1 if the next job needs
--   `settle_and_claim`. Returns 0 if nothing was written and `settle_and_claim` has to do it all.
local blockers = {
  prefix .. 'dependency_count', prefix .. 'job_sequence', prefix .. 'limits', prefix .. 'limit_lane_queues',
  prefix .. 'limit_slots', prefix .. 'cancel_requests', prefix .. 'expiry_times',
}
local claimed_names, completed_ids, claimed = {}, {}, {{}, {}, {}, {}, {}}
for i, queue_claim in ipairs(request.claims) do
  claimed_names[i] = queue_claim[CLAIM_QUEUE]
  blockers[#blockers + 1] = prefix .. 'lanes:' .. queue_claim[CLAIM_QUEUE]
  blockers[#blockers + 1] = prefix .. 'ready_capped:' .. queue_claim[CLAIM_QUEUE]
  blockers[#blockers + 1] = prefix .. 'fairness_keys:' .. queue_claim[CLAIM_QUEUE]
end
if redis.call('EXISTS', unpack(blockers)) > 0 then
  return 0
end

for number = 1, request.completed do
  completed_ids[number] = ARGV[2 * number]
end
prefetch_headers(completed_ids)
if #complete_fast(request.completed) > 0 then
  return 0
end

local next_due_at
local has_more = 0
local claimed_counts = {}
local packed_queues = fetch('HMGET', claimed_names, prefix .. 'queues')
for i, queue_claim in ipairs(request.claims) do
  local due = redis.call('ZRANGE', prefix .. 'delayed:' .. claimed_names[i], 0, 0, 'WITHSCORES')
  local due_at = tonumber(due[2])
  if due_at and due_at <= now then
    return 0
  end
  next_due_at = due_at and math.min(due_at, next_due_at or due_at) or next_due_at
  local queue = packed_queues[i] and cmsgpack.unpack(packed_queues[i])
  local max_jobs = math.min(queue_claim[CLAIM_LIMIT], request.room - #claimed[1])
  if has_more == 0 and max_jobs > 0 and queue and (queue[Q_STATE] == 'active' or queue[Q_STATE] == 'draining') then
    local order = {key = ready_key(claimed_names[i], false, false), at = 1}
    order.members = redis.call('ZRANGE', order.key, 0, max_jobs - 1)
    prefetch_headers(ids_in(order.members))
    local lease_ms = {queue_claim[CLAIM_LEASE_MS], queue[Q_LEASE_MS]}
    claimed_counts[order.key] = start_fast(order, max_jobs, lease_ms, claimable_lanes(queue_claim), claimed)
    -- They are the first of their order, so one command removes them all.
    removals[order.key] = nil
    has_more = order.at <= #order.members and 1 or 0
  end
end

call_in_slices('HSET', prefix .. 'headers', header_writes)
for key, jobs in pairs(claimed_counts) do
  if jobs > 0 then
    redis.call('ZREMRANGEBYRANK', key, 0, jobs - 1)
  end
end
write_indexes()
if #claimed[1] > 0 then
  redis.call('SADD', prefix .. 'lease_holders', request.worker)
end
claimed[3] = limit_payloads(fetch('MGET', claimed[3]))
return {claimed, next_due_at and next_due_at - now or false, has_more}
