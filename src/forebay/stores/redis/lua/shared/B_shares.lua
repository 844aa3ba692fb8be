-- Shares, as domain/share.py has them: whose turn it is.
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

-- A share has something to run. One that had nothing begins a step behind the first.
local function join_share(name, share)
  local key = prefix .. 'shares:' .. name
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  redis.call('ZADD', key, 'NX', tonumber(first or 0) + share_step(queue_of(name), share), share)
end

local function leave_share(name, share)
  redis.call('ZREM', prefix .. 'shares:' .. name, share)
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
