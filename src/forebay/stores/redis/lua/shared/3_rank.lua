-- The formula of domain/rank.py. Every value stays below 2^53, so doubles are exact.

-- Wait that is worth this many thousandths of a point. In two parts: points times 2^40 is too much.
local function points_to_ms(queue, points)
  local whole_points = trunc(points / 1000)
  return whole_points * queue[Q_AGING_MS] + trunc((points - whole_points * 1000) * queue[Q_AGING_MS] / 1000)
end

local function cap_ms(queue)
  return queue[Q_CAP] and points_to_ms(queue, queue[Q_CAP]) or 0
end

local function deadline_step(queue, deadline_at)
  if queue[Q_DEADLINE_WEIGHT] == 0 then
    return 0, false
  end
  local horizon = queue[Q_HORIZON_MS]
  local begins_at = deadline_at - horizon
  if now >= deadline_at then
    return 8, false
  end
  local step = now >= begins_at and math.floor((now - begins_at) * 8 / horizon) or 0
  -- Rounded up: at this instant the step must really have been reached.
  return step, begins_at + math.ceil(horizon * (step + 1) / 8)
end

-- Compute the rank of a waiting job and write it into its header.
local function set_rank(queue, header)
  local points = header[PRIORITY] * 1000
  local next_step = false
  if header[FAILURES] > 0 then
    points = points - math.min(header[FAILURES] * queue[Q_PENALTY], 100000)
  end
  if header[DEADLINE_AT] then
    local step
    step, next_step = deadline_step(queue, header[DEADLINE_AT])
    points = points + math.floor(queue[Q_DEADLINE_WEIGHT] * step * step / 64)
  end
  local offset_ms = points_to_ms(queue, points)
  local capped_from = queue[Q_CAP] and header[READY_AT] + cap_ms(queue)
  header[AGE_CAPPED] = capped_from and now >= capped_from or false
  header[RESCORE_AT] = next_step
  if header[AGE_CAPPED] then
    header[RANK] = -offset_ms
    return
  end
  header[RANK] = header[READY_AT] - offset_ms
  -- Jobs that were ready when they were created need no rescore time: `rescore` finds them by seq.
  if capped_from and header[READY_AT] ~= header[CREATED_AT] then
    header[RESCORE_AT] = next_step and math.min(capped_from, next_step) or capped_from
  end
end
