#!lua flags=no-writes
-- check_jobs: check the indexes, edges and keys of some jobs against their headers.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: cursor, limit
-- Returns the next cursor ('0' at the end) and a sentence for each problem.
local page = redis.call('HSCAN', prefix .. 'headers', request.cursor, 'COUNT', request.limit)
local problems = {}
local job

local function report(problem)
  problems[#problems + 1] = 'job ' .. job.id .. ' ' .. problem
end

local function check_entry(key, score, name)
  local stored_score = redis.call('ZSCORE', key, name)
  if not stored_score or (score and tonumber(stored_score) ~= score) then
    report('is missing in an order, ' .. string.sub(key, #prefix + 1))
  end
end

local function check_edges(header)
  local blocking = 0
  local edges = parent_edges(job.id)
  for i = 1, #edges, 2 do
    local parent = string.match(edges[i + 1], '^%a+ (.*)$')
    local state = tonumber(redis.call('ZSCORE', prefix .. 'children:' .. parent, edge_member(job.id, edges[i])))
    blocking = blocking + ((state == HELD or (state == OPEN and not is_met(parent))) and 1 or 0)
  end
  local sequence = redis.call('HGET', prefix .. 'job_sequence', job.id)
  if sequence and redis.call('ZRANK', prefix .. 'sequence:' .. sequence, job.id) ~= 0 then
    blocking = blocking + 1
  end
  if tonumber(redis.call('HGET', prefix .. 'unmet', job.id) or 0) ~= blocking then
    report('is blocked by ' .. blocking .. ' edges, and another number is counted')
  end
  if not FINAL[header[STATE]] and (header[STATE] == 'blocked') ~= (blocking > 0) then
    report('is ' .. header[STATE] .. ', and its edges say otherwise')
  end
end

local function check_waiting(header)
  if header[STATE] == 'pending' then
    check_entry(ready_key(header[QUEUE], header[LANE], header[AGE_CAPPED]), header[RANK], member_of_job(job))
  else
    local index = header[STATE] == 'blocked' and 'blocked:' or 'delayed:'
    check_entry(prefix .. index .. header[QUEUE], header[RUN_AT], member_of_job(job))
  end
  if header[EXPIRES_AT] then
    check_entry(prefix .. 'expiry_times', header[EXPIRES_AT], member_of_job(job))
  end
  if header[RESCORE_AT] then
    check_entry(prefix .. 'rescore_times', header[RESCORE_AT], member_of_job(job))
  end
end

local function check(header)
  local state = header[STATE]
  if not load_queue(header[QUEUE]) then
    report('is in no known queue')
  end
  if redis.call('EXISTS', body_key(header[SEQ])) == 0 then
    report('has no body')
  end
  if state == 'running' then
    if not header[WORKER] or not redis.call('ZSCORE', prefix .. 'leases:' .. header[WORKER], member_of_job(job)) then
      report('is running without a lease')
    end
  elseif FINAL[state] then
    check_entry(final_key(header[QUEUE], state), header[FINISHED_AT], job.id)
  else
    check_waiting(header)
  end
  check_edges(header)
  local holds_key = header[UNIQUE_KEY] and not FINAL[state] and (not header[UNTIL_STARTED] or header[ATTEMPT] == 0)
  if holds_key and unique_holder(header[QUEUE], header[UNIQUE_KEY]) ~= job.id then
    report('does not hold its unique key')
  end
end

for i = 1, #page[2], 2 do
  job = load_job(page[2][i])
  if job then
    check(job.header)
  else
    job = {id = page[2][i]}
    report('has a damaged header')
  end
end
return {page[1], problems}
