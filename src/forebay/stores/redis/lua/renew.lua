#!lua flags=allow-oom
-- Push lease ends further away; an end never moves back.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: worker, leases {id, attempt}, lease_ms
-- Returns for each lease why it was refused, or '', and the cancels of this worker.
local worker = ask.worker
local ids, answers, ends = {}, {}, {}
for i, lease in ipairs(ask.leases) do
  ids[i] = lease[1]
end
load(ids)

for i, lease in ipairs(ask.leases) do
  local job = find(lease[1])
  local reason = why_not_held(job, lease[2], worker)
  if not reason and now >= job.head[STARTED_AT] + job.head[EXTENSION_MS] then
    reason = 'extension over'
  end
  answers[i] = reason or ''
  if not reason then
    local head = job.head
    local queue = queue_of(head[QUEUE])
    local lease_ms = ask.lease_ms or head[LEASE_MS] or queue[Q_LEASE_MS]
    ends[#ends + 1] = math.min(now + lease_ms, head[STARTED_AT] + head[EXTENSION_MS])
    ends[#ends + 1] = member(job)
  end
end
for first = 1, #ends, SLICE do
  local last = math.min(first + SLICE - 1, #ends)
  redis.call('ZADD', prefix .. 'leases:' .. worker, 'XX', 'GT', unpack(ends, first, last))
end
return {answers, cancels_of(worker)}
