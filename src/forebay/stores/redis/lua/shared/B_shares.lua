-- Shares, as domain/fairness.py has them: whose turn it is.
local STEP = 1000000
local are_shares_known

local function share_step(queue, share)
  local weights = queue[Q_SHARE_WEIGHTS]
  return math.floor(STEP / (weights and weights[share] or 1))
end

-- Whether any job ever had a share; asked once in a script.
local function has_shares()
  if are_shares_known == nil then
    are_shares_known = redis.call('EXISTS', prefix .. 'has_shares') == 1
  end
  return are_shares_known
end

-- A job with a share was accepted, be it pending or not.
local function note_shares()
  if not has_shares() then
    noted[#noted + 1] = function() redis.call('SET', prefix .. 'has_shares', 1) end
    are_shares_known = true
  end
end

-- A share has something to run. One that had nothing begins a step behind the first; one with lanes behind limits goes on
-- from the turn that was kept for it, at most a step from the first (`resuming` in domain/fairness.py).
local function join_share(name, share)
  local key, by = prefix .. 'shares:' .. name, share_step(queue_of(name), share)
  local first = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  local turn = tonumber(redis.call('HGET', prefix .. 'lane_turns:' .. name, share) or nil)
  if not turn then
    turn = (first or 0) + by
  elseif first then
    turn = math.max(first - by, math.min(turn, first + by))
  end
  redis.call('ZADD', key, 'NX', turn, share)
end

-- A share has nothing to run outside of its lanes.
local function leave_share(name, share)
  local key, kept = prefix .. 'shares:' .. name, prefix .. 'lane_turns:' .. name
  if redis.call('HEXISTS', kept, share) == 1 then
    redis.call('HSET', kept, share, redis.call('ZSCORE', key, share) or 0)
  end
  redis.call('ZREM', key, share)
end

local function lanes_key(name, scope)
  return prefix .. 'lanes:' .. name .. '\t' .. scope
end

local function lane_gate(scope, share)
  return 'limit:' .. scope .. '\t' .. share
end

-- A job of a share waits behind a limit. A new lane begins a step behind the first; with the first lane of a share its turn in
-- the queue is kept.
local function join_lane(name, scope, share)
  local key = lanes_key(name, scope)
  local first = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or 0)
  local is_new = redis.call('ZADD', key, 'NX', first + share_step(queue_of(name), share), share) == 1
  if is_new and redis.call('HINCRBY', prefix .. 'lane_counts:' .. name, share, 1) == 1 then
    local turn = redis.call('ZSCORE', prefix .. 'shares:' .. name, share)
    redis.call('HSET', prefix .. 'lane_turns:' .. name, share, turn or 0)
  end
end

local function leave_lane(name, scope, share)
  local is_gone = redis.call('ZREM', lanes_key(name, scope), share) == 1
  if is_gone and redis.call('HINCRBY', prefix .. 'lane_counts:' .. name, share, -1) <= 0 then
    redis.call('HDEL', prefix .. 'lane_counts:' .. name, share)
    redis.call('HDEL', prefix .. 'lane_turns:' .. name, share)
  end
end

-- The key and the member of a job of a lane, the how many-th counts from 0; nothing behind the last one.
local function lane_member(name, gate, nth)
  local key = ready_key(name, gate, false)
  local one = redis.call('ZRANGE', key, nth, nth)[1]
  if not one then
    nth = nth - redis.call('ZCARD', key)
    key = ready_key(name, gate, true)
    one = redis.call('ZRANGE', key, nth, nth)[1]
  end
  return key, one
end

-- Let jobs leave their lanes by the turns of shares and wait for these in the queue again; answers how many.
-- A lane that runs dry is left only when all is written: till then it keeps the turn of its share.
local function bring_in_turn(name, scope, most)
  local key, back, taken, dry = lanes_key(name, scope), 0, {}, 0
  while back < most do
    local share = redis.call('ZRANGE', key, dry, dry)[1]
    if not share then
      break
    end
    local gate = lane_gate(scope, share)
    local from, one = lane_member(name, gate, taken[share] or 0)
    taken[share] = (taken[share] or 0) + 1
    local job = one and find(id_in(one))
    if job then
      lift(job)
      job.head[GATE], job.head[UPDATED_AT] = 'fair:' .. share, now
      put(job)
      back = back + 1
      redis.call('ZADD', key, 'XX', 'INCR', share_step(queue_of(name), share), share)
    elseif one then
      remove_later(from, one)
    else
      -- In front of all others, where it is passed over.
      redis.call('ZADD', key, 'XX', '-inf', share)
      dry = dry + 1
    end
  end
  flush()
  for share in pairs(taken) do
    local gate = lane_gate(scope, share)
    if redis.call('EXISTS', ready_key(name, gate, false), ready_key(name, gate, true)) == 0 then
      leave_lane(name, scope, share)
    end
  end
  return back
end

-- Look at the shares of a queue that are next, as many as a claim may take jobs; and at as many again each time, where some
-- had nothing to give. Those that were seen before stay as they are.
local function look_at_shares(shares)
  if not has_shares() then
    shares.are_all = true
    return
  end
  local queue, most = shares.queue, shares.most
  shares.seen = shares.seen and 2 * shares.seen or most
  local found = redis.call('ZRANGE', prefix .. 'shares:' .. shares.of, 0, shares.seen - 1, 'WITHSCORES')
  shares.are_all = #found < 2 * shares.seen
  local width = math.ceil(2 * most / math.max(1, #found)) + 1
  for i = 1, #found, 2 do
    local gate, cap = 'fair:' .. found[i], cap_ms(queue)
    if not shares.known[found[i]] then
      shares.known[found[i]] = true
      shares[#shares + 1] = {
        name = found[i],
        turn = tonumber(found[i + 1]),
        step = share_step(queue, found[i]),
        width = width,
        orders = {
          {key = ready_key(shares.of, gate, false), lead = now, from = 0, at = 1, members = {}},
          {key = ready_key(shares.of, gate, true), lead = cap, from = 0, at = 1, members = {}},
        },
      }
    end
  end
end

-- The order whose first job is next, be it one of the queue or of the share whose turn it is; and that share.
local function leading_in_turn(orders, shares, most)
  while true do
    while #shares < most and not shares.are_all do
      look_at_shares(shares)
    end
    if #shares == 0 then
      break
    end
    local at = 1
    for i = 2, #shares do
      if shares[i].turn < shares[at].turn or (shares[i].turn == shares[at].turn and shares[i].name < shares[at].name) then
        at = i
      end
    end
    local share = shares[at]
    local own, own_member, own_lead = leading(share.orders, share.width, true)
    if own then
      local other, member_there, lead_there = leading(orders, most, true)
      if other and (lead_there > own_lead or (lead_there == own_lead and member_there < own_member)) then
        return other, member_there
      end
      return own, own_member, share
    end
    table.remove(shares, at)
    -- If there is nothing behind its gate at all, as where the record of a job was lost, it is forgotten with the others.
    local used = gates[shares.of] or {}
    gates[shares.of] = used
    used['fair:' .. share.name] = used['fair:' .. share.name] or false
  end
  local order, first_member = leading(orders, most)
  return order, first_member
end

-- A job of a share was taken: others are next.
local function move_share(name, share)
  share.turn = share.turn + share.step
  redis.call('ZADD', prefix .. 'shares:' .. name, 'XX', share.turn, share.name)
end

-- Where a job waits that becomes due: one of a share waits for its turn.
local function gate_when_due(job)
  if not has_shares() then
    return false
  end
  local keys = options_in(job, 'share').limit_keys
  local share = keys and keys.share
  return share and 'fair:' .. share or false
end
