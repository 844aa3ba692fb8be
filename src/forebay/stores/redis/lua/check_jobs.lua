#!lua flags=no-writes
-- Whether some jobs stand where their heads say, and hold what they should.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: cursor, most
-- Returns the next cursor ('0' at the end) and a sentence for each thing that is wrong.
local page = redis.call('HSCAN', prefix .. 'heads', ask.cursor, 'COUNT', ask.most)
local found = {}
local job

local function wrong(what)
  found[#found + 1] = 'job ' .. job.id .. ' ' .. what
end

local function stands(key, score, name)
  local there = redis.call('ZSCORE', key, name)
  if not there or (score and tonumber(there) ~= score) then
    wrong('is missing in an order, ' .. string.sub(key, #prefix + 1))
  end
end

local function check_edges(head)
  local blocking = 0
  local all = edges_of(job.id)
  for i = 1, #all, 2 do
    local parent = string.match(all[i + 1], '^%a+ (.*)$')
    local state = tonumber(redis.call('ZSCORE', prefix .. 'behind:' .. parent, edge_name(job.id, all[i])))
    blocking = blocking + ((state == HELD or (state == OPEN and not is_met(parent))) and 1 or 0)
  end
  local sequence = redis.call('HGET', prefix .. 'sequence_of', job.id)
  if sequence and redis.call('ZRANK', prefix .. 'sequence:' .. sequence, job.id) ~= 0 then
    blocking = blocking + 1
  end
  if tonumber(redis.call('HGET', prefix .. 'unmet', job.id) or 0) ~= blocking then
    wrong('is blocked by ' .. blocking .. ' edges, and another number is counted')
  end
  if not FINAL[head[STATE]] and (head[STATE] == 'blocked') ~= (blocking > 0) then
    wrong('is ' .. head[STATE] .. ', and its edges say otherwise')
  end
end

local function check_waiting(head)
  if head[STATE] == 'pending' then
    stands(ready_key(head[QUEUE], head[GATE], head[CAPPED]), head[RANK], member(job))
  else
    stands(prefix .. (head[STATE] == 'blocked' and 'blocked:' or 'due:') .. head[QUEUE], head[RUN_AT], member(job))
  end
  if head[EXPIRES_AT] then
    stands(prefix .. 'expiring', head[EXPIRES_AT], member(job))
  end
  if head[RESCORE_AT] then
    stands(prefix .. 'rescoring', head[RESCORE_AT], member(job))
  end
end

local function check(head)
  local state = head[STATE]
  if not queue_of(head[QUEUE]) then
    wrong('is in no known queue')
  end
  if redis.call('EXISTS', body_key(head[SEQ])) == 0 then
    wrong('has no body')
  end
  if state == 'running' then
    if not head[WORKER] or not redis.call('ZSCORE', prefix .. 'leases:' .. head[WORKER], member(job)) then
      wrong('is running without a lease')
    end
  elseif FINAL[state] then
    stands(final_key(head[QUEUE], state), head[FINISHED_AT], job.id)
  else
    check_waiting(head)
  end
  check_edges(head)
  local holds = head[UNIQUE_KEY] and not FINAL[state] and (not head[UNTIL_STARTED] or head[ATTEMPT] == 0)
  if holds and unique_holder(head[QUEUE], head[UNIQUE_KEY]) ~= job.id then
    wrong('does not hold its unique key')
  end
end

for i = 1, #page[2], 2 do
  job = find(page[2][i])
  if job then
    check(job.head)
  else
    job = {id = page[2][i]}
    wrong('has a damaged head')
  end
end
return {page[1], found}
