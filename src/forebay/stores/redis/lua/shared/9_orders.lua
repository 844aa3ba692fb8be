-- The orders of one queue, merged: what a claim takes, and what a peek shows.
local GATES_AT_A_TIME = 100
local NEXT_WINDOW = 100

-- What a worker wants: up to so many jobs of a queue; which gates it may pass, all if it does not say; and how many
-- jobs that are not for it are put aside at most.
local W_QUEUE, W_MOST, W_LEASE_MS, W_GATES, W_MOST_HELD = 1, 2, 3, 4, 5

local function gates_passed(want)
  if not want[W_GATES] then
    return
  end
  local passes = {}
  for _, gate in ipairs(want[W_GATES]) do
    passes[gate] = true
  end
  return passes
end

-- The gates with jobs behind them, all or those that somebody may pass.
local function gates_of(queue, passes)
  local names = {}
  for _, gate in ipairs(redis.call('SMEMBERS', prefix .. 'gates:' .. queue)) do
    if not passes or passes[gate] then
      names[#names + 1] = gate
    end
  end
  table.sort(names)
  return names
end

-- All gates with jobs behind them, those of limits and shares too.
local function all_gates_of(queue)
  local names = gates_of(queue)
  for _, scope in ipairs(redis.call('ZRANGE', prefix .. 'closed:' .. queue, 0, -1)) do
    names[#names + 1] = 'limit:' .. scope
    for _, share in ipairs(redis.call('ZRANGE', lanes_key(queue, scope), 0, -1)) do
      names[#names + 1] = lane_gate(scope, share)
    end
  end
  for _, share in ipairs(redis.call('ZRANGE', prefix .. 'shares:' .. queue, 0, -1)) do
    names[#names + 1] = 'fair:' .. share
  end
  table.sort(names)
  return names
end

-- The orders from which a claim takes, each with a window that is moved on when it is used up.
local function orders_of(name, queue, names)
  local cap = cap_ms(queue)
  local orders = {
    {key = ready_key(name, false, false), lead = now, from = 0, at = 1, members = {}},
    {key = ready_key(name, false, true), lead = cap, from = 0, at = 1, members = {}},
  }
  for i, gate in ipairs(names) do
    if i > GATES_AT_A_TIME then
      break
    end
    for _, capped in ipairs({false, true}) do
      local lead = capped and cap or now
      orders[#orders + 1] = {key = ready_key(name, gate, capped), lead = lead, from = 0, at = 1, members = {}}
    end
  end
  return orders
end

-- Ranks are needed only to compare orders.
local function look_on(order, width, is_alone)
  local last = order.from + width - 1
  order.at, order.members, order.ranks = 1, {}, {}
  if is_alone then
    order.members = redis.call('ZRANGE', order.key, order.from, last)
  else
    local found = redis.call('ZRANGE', order.key, order.from, last, 'WITHSCORES')
    for i = 1, #found, 2 do
      order.members[(i + 1) / 2], order.ranks[(i + 1) / 2] = found[i], found[i + 1]
    end
  end
  order.from, order.is_done = last + 1, #order.members < width
  bring(ids_in(order.members))
end

local function first_in(order, most, is_alone)
  if order.at > #order.members and not order.is_done then
    -- Most claims need no second window; one that does has met jobs that are not for it.
    look_on(order, order.from == 0 and most or NEXT_WINDOW, is_alone)
  end
  return order.members[order.at]
end

-- The order whose first job leads, that job and its lead; ties go to the lower number, which is what members begin
-- with. The lead of the only order is not worked out, unless somebody compares it with others.
local function leading(orders, most, is_compared)
  local best, best_member, best_lead
  for i = #orders, 1, -1 do
    local order = orders[i]
    local is_alone = #orders == 1 and not is_compared
    local one = first_in(order, most, is_alone)
    local lead = one and not is_alone and order.lead - order.ranks[order.at]
    if not one then
      table.remove(orders, i)
    elseif not best or lead > best_lead or (lead == best_lead and one < best_member) then
      best, best_member, best_lead = order, one, lead
    end
  end
  return best, best_member, best_lead
end
