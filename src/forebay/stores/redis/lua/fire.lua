#!lua
-- Fire schedules: enqueue the jobs of their runs and move them on. Says the same as `landed` in Python.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: lots, lot_of, keyed, first, fresh, create_queues (see intake); held_for_ms; kept (lines of
--       history); moves: name, revision, runs (number of the job, time, what is said if its key is taken), skips
--       (lines of history), next_at, due_at, holds, removes, by_hand, max_firings.  2... id and body of each job
-- Returns what is done: for each move its new lines of history, packed; false if it was not made.

local function may_fire(schedule, move)
  if not schedule or schedule[S_REVISION] ~= move.revision then
    return false
  end
  return move.by_hand or (schedule[S_DUE_AT] and schedule[S_DUE_AT] <= now)
end

-- Accept the jobs of a move; answers a line for each, whether one was taken, and whether one was refused.
local function enqueue(move)
  local lines, is_taken, is_refused = {}, false, false
  for i, run in ipairs(move.runs) do
    local receipt, refusal = accept(run[1], 'return', false)
    if refusal then
      is_refused = true
      lines[i] = {run[2], 'error', now, false, refusal, false, 1}
    elseif receipt[2] == 0 then
      is_taken = true
      lines[i] = {run[2], 'skipped', now, receipt[1], run[3], false, 1}
    else
      lines[i] = {run[2], 'enqueued', now, receipt[1], '', false, 1}
    end
  end
  return lines, is_taken, is_refused
end

local function count_lines(schedule, lines)
  for _, line in ipairs(lines) do
    if line[2] == 'enqueued' then
      schedule[S_FIRED] = schedule[S_FIRED] + line[7]
      schedule[S_LAST_AT], schedule[S_LAST_JOB_ID] = line[1], line[4]
    elseif line[2] == 'skipped' then
      schedule[S_SKIPPED] = schedule[S_SKIPPED] + line[7]
    else
      schedule[S_FAILED] = schedule[S_FAILED] + line[7]
    end
  end
end

local function move_on(schedule, move)
  if not move.by_hand then
    schedule[S_NEXT_AT], schedule[S_DUE_AT] = move.next_at or false, move.due_at or false
  end
  if move.max_firings and schedule[S_FIRED] >= move.max_firings then
    schedule[S_NEXT_AT], schedule[S_DUE_AT] = false, false
  end
end

local function write_lines(name, lines)
  local packed = {}
  for i, line in ipairs(lines) do
    packed[i] = cmsgpack.pack(line)
  end
  if #packed > 0 then
    local history = prefix .. 'firings:' .. name
    send('RPUSH', history, packed)
    redis.call('LTRIM', history, -ask.kept, -1)
  end
  return packed
end

local function fire(move)
  local schedule = schedule_of(move.name)
  if not may_fire(schedule, move) then
    return false
  end
  local lines, is_taken, is_refused = enqueue(move)
  schedule[S_REVISION], schedule[S_UPDATED_AT] = schedule[S_REVISION] + 1, now
  if move.holds and is_taken then
    if not move.by_hand then
      schedule[S_DUE_AT] = now + ask.held_for_ms
    end
    put_schedule(move.name, schedule)
    return {}
  end
  for i, line in ipairs(move.skips) do
    line[3] = now
    table.insert(lines, i, line)
  end
  local packed = write_lines(move.name, lines)
  if move.removes and not is_refused then
    forget_schedule(move.name)
  else
    count_lines(schedule, lines)
    move_on(schedule, move)
    put_schedule(move.name, schedule)
  end
  return packed
end

local taken = repeated_id()
if taken then
  return {'refused', taken}
end
local answers = {}
for i, move in ipairs(ask.moves) do
  answers[i] = fire(move)
end
return finish({'done', answers})
