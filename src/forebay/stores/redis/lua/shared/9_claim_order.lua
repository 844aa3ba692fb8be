-- Orders of one queue, merged: the candidates of a claim, and of a peek.
local MAX_LANES = 100
local NEXT_WINDOW = 100

-- Claim of a worker: queue, number of jobs, lease_ms, lanes that the worker can run (false for all), and how many other
-- jobs it parks at most.
local CLAIM_QUEUE, CLAIM_LIMIT, CLAIM_LEASE_MS, CLAIM_LANES, CLAIM_MAX_PARKED = 1, 2, 3, 4, 5

local function claimable_lanes(queue_claim)
  if not queue_claim[CLAIM_LANES] then
    return
  end
  local allowed_lanes = {}
  for _, lane in ipairs(queue_claim[CLAIM_LANES]) do
    allowed_lanes[lane] = true
  end
  return allowed_lanes
end

-- Lanes with jobs, all or those allowed; without lanes of limits and fairness keys.
local function queue_lanes(queue, allowed_lanes)
  local lanes = {}
  for _, lane in ipairs(redis.call('SMEMBERS', prefix .. 'lanes:' .. queue)) do
    if not allowed_lanes or allowed_lanes[lane] then
      lanes[#lanes + 1] = lane
    end
  end
  table.sort(lanes)
  return lanes
end

-- All lanes with jobs, those of limits and fairness keys included.
local function all_lanes(queue)
  local lanes = queue_lanes(queue)
  for _, scope in ipairs(redis.call('ZRANGE', prefix .. 'limit_lanes:' .. queue, 0, -1)) do
    lanes[#lanes + 1] = 'limit:' .. scope
    for _, fairness_key in ipairs(redis.call('ZRANGE', limit_lanes_key(queue, scope), 0, -1)) do
      lanes[#lanes + 1] = limit_fairness_lane(scope, fairness_key)
    end
  end
  for _, fairness_key in ipairs(redis.call('ZRANGE', prefix .. 'fairness_keys:' .. queue, 0, -1)) do
    lanes[#lanes + 1] = 'fairness:' .. fairness_key
  end
  table.sort(lanes)
  return lanes
end

-- Orders of a claim, each with a window of members that moves on once it is used up. A job's effective priority is the
-- base priority of its order minus its rank.
local function claim_orders(name, queue, lanes)
  local cap = cap_ms(queue)
  local orders = {
    {key = ready_key(name, false, false), base_priority = now, from = 0, at = 1, members = {}},
    {key = ready_key(name, false, true), base_priority = cap, from = 0, at = 1, members = {}},
  }
  for i, lane in ipairs(lanes) do
    if i > MAX_LANES then
      break
    end
    for _, capped in ipairs({false, true}) do
      local base_priority = capped and cap or now
      local key = ready_key(name, lane, capped)
      orders[#orders + 1] = {key = key, base_priority = base_priority, from = 0, at = 1, members = {}}
    end
  end
  return orders
end

-- Ranks are needed only to compare orders.
local function load_window(order, width, is_alone)
  local last = order.from + width - 1
  order.at, order.members, order.ranks = 1, {}, {}
  if is_alone then
    order.members = redis.call('ZRANGE', order.key, order.from, last)
  else
    local rows = redis.call('ZRANGE', order.key, order.from, last, 'WITHSCORES')
    for i = 1, #rows, 2 do
      order.members[(i + 1) / 2], order.ranks[(i + 1) / 2] = rows[i], rows[i + 1]
    end
  end
  order.from, order.is_done = last + 1, #order.members < width
  prefetch_headers(ids_in(order.members))
end

local function peek_order(order, max_jobs, is_alone)
  if order.at > #order.members and not order.is_done then
    -- Most claims need no second window; one that does has met jobs that it cannot run.
    load_window(order, order.from == 0 and max_jobs or NEXT_WINDOW, is_alone)
  end
  return order.members[order.at]
end

-- The order with the best candidate, that candidate and its effective priority. Ties go to the lower seq, with which
-- members begin. The priority of the only order is not computed, unless the caller compares it with others.
local function best_candidate(orders, max_jobs, is_compared)
  local best, best_member, best_priority
  for i = #orders, 1, -1 do
    local order = orders[i]
    local is_alone = #orders == 1 and not is_compared
    local member = peek_order(order, max_jobs, is_alone)
    local priority = member and not is_alone and order.base_priority - order.ranks[order.at]
    if not member then
      table.remove(orders, i)
    elseif not best or priority > best_priority or (priority == best_priority and member < best_member) then
      best, best_member, best_priority = order, member, priority
    end
  end
  return best, best_member, best_priority
end
