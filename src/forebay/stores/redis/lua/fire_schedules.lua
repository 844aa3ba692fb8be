#!lua
-- fire_schedules: enqueue the jobs of schedule runs and advance the schedules. Same rules as `landed` in Python.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: groups, group_of, keyed, first, default_queue, create_queues (see 7_insert); postpone_ms;
--   max_stored_runs; advances: name, revision, runs (number of the job, planned time, reason if its key is taken),
--   skips (run rows), next_run_at, check_at, waits_for_previous, removes_schedule, is_manual, max_runs. 2... id and
--   body of each job
-- Returns 'done' and for each advance its new run rows, packed; false if it was not applied.

local function may_fire(schedule, advance)
  if not schedule or schedule[S_REVISION] ~= advance.revision then
    return false
  end
  return advance.is_manual or (schedule[S_CHECK_AT] and schedule[S_CHECK_AT] <= now)
end

-- Insert the jobs of an advance. Returns a row for each run, whether a key was taken, and whether a job was refused.
local function enqueue(advance)
  local records, is_key_taken, is_refused = {}, false, false
  for i, run in ipairs(advance.runs) do
    local insert_result, refusal = accept_job(run[1], 'return', false)
    if refusal then
      is_refused = true
      records[i] = {run[2], 'error', now, false, refusal, false, 1}
    elseif insert_result[2] == 0 then
      is_key_taken = true
      records[i] = {run[2], 'skipped', now, insert_result[1], run[3], false, 1}
    else
      records[i] = {run[2], 'enqueued', now, insert_result[1], '', false, 1}
    end
  end
  return records, is_key_taken, is_refused
end

local function count_runs(schedule, records)
  for _, record in ipairs(records) do
    if record[2] == 'enqueued' then
      schedule[S_ENQUEUED_RUNS] = schedule[S_ENQUEUED_RUNS] + record[7]
      schedule[S_LAST_RUN_AT], schedule[S_LAST_JOB_ID] = record[1], record[4]
    elseif record[2] == 'skipped' then
      schedule[S_SKIPPED_RUNS] = schedule[S_SKIPPED_RUNS] + record[7]
    else
      schedule[S_FAILED_RUNS] = schedule[S_FAILED_RUNS] + record[7]
    end
  end
end

local function advance_schedule(schedule, advance)
  if not advance.is_manual then
    schedule[S_NEXT_RUN_AT], schedule[S_CHECK_AT] = advance.next_run_at or false, advance.check_at or false
  end
  if advance.max_runs and schedule[S_ENQUEUED_RUNS] >= advance.max_runs then
    schedule[S_NEXT_RUN_AT], schedule[S_CHECK_AT] = false, false
  end
end

local function append_runs(name, records)
  local packed = {}
  for i, record in ipairs(records) do
    packed[i] = cmsgpack.pack(record)
  end
  if #packed > 0 then
    local history = prefix .. 'schedule_runs:' .. name
    call_in_slices('RPUSH', history, packed)
    redis.call('LTRIM', history, -request.max_stored_runs, -1)
  end
  return packed
end

local function fire_schedule(advance)
  local schedule = load_schedule(advance.name)
  if not may_fire(schedule, advance) then
    return false
  end
  local records, is_key_taken, is_refused = enqueue(advance)
  schedule[S_REVISION], schedule[S_UPDATED_AT] = schedule[S_REVISION] + 1, now
  if advance.waits_for_previous and is_key_taken then
    if not advance.is_manual then
      schedule[S_CHECK_AT] = now + request.postpone_ms
    end
    store_schedule(advance.name, schedule)
    return {}
  end
  for i, record in ipairs(advance.skips) do
    record[3] = now
    table.insert(records, i, record)
  end
  local packed = append_runs(advance.name, records)
  if advance.removes_schedule and not is_refused then
    delete_schedule(advance.name)
  else
    count_runs(schedule, records)
    advance_schedule(schedule, advance)
    store_schedule(advance.name, schedule)
  end
  return packed
end

local repeated = find_repeated_id()
if repeated then
  return {'refused', repeated}
end
local answers = {}
for i, advance in ipairs(request.advances) do
  answers[i] = fire_schedule(advance)
end
return finish({'done', answers})
