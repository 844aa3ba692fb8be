-- The orders of one queue, merged: what a claim takes, and what a peek shows.
local GATES_AT_A_TIME = 100
local NEXT_WINDOW = 100

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

-- The orders from which a claim takes, each with a window that is moved on when it is used up.
local function orders_of(name, queue, names)
  local cap = cap_ms(queue)
  local orders = {
    {key = ready_key(name, false, false), lead = now, from = 0, at = 1, window = {}},
    {key = ready_key(name, false, true), lead = cap, from = 0, at = 1, window = {}},
  }
  for i, gate in ipairs(names) do
    if i > GATES_AT_A_TIME then
      break
    end
    for _, capped in ipairs({false, true}) do
      local lead = capped and cap or now
      orders[#orders + 1] = {key = ready_key(name, gate, capped), lead = lead, from = 0, at = 1, window = {}}
    end
  end
  return orders
end

local function head_of(order, most)
  if order.at > #order.window then
    if order.is_done then
      return
    end
    -- Most claims need no second window; one that does has met jobs that are not for it.
    local width = order.from == 0 and most or NEXT_WINDOW
    order.window = redis.call('ZRANGE', order.key, order.from, order.from + width - 1, 'WITHSCORES')
    order.from, order.at, order.is_done = order.from + width, 1, #order.window < 2 * width
    local ids = {}
    for i = 1, #order.window, 2 do
      ids[#ids + 1] = id_in(order.window[i])
    end
    load(ids)
    if #ids == 0 then
      return
    end
  end
  return order.window[order.at], order.lead - order.window[order.at + 1]
end

-- The order whose first job leads; ties go to the lower number, which is what members begin with.
local function leading(orders, most)
  local best, best_member, best_lead
  for _, order in ipairs(orders) do
    local one, lead = head_of(order, most)
    if one and (not best or lead > best_lead or (lead == best_lead and one < best_member)) then
      best, best_member, best_lead = order, one, lead
    end
  end
  return best, best_member
end
