#!lua flags=no-writes
-- How much memory some final jobs of one queue and state take, the last ended first.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: queue, state, skip: how many come before them, most, room: bytes that they may take
-- Returns how many of them fit, what these take, and 1 if the next one does not fit.
local PLACES = 200  -- bytes: a member of a sorted set and a field of a hash, roughly

local function memory(name)
  return redis.call('MEMORY', 'USAGE', prefix .. name) or 0
end

-- Most jobs have none of these, and one question for all is a third of the work of four.
local function memory_of_notes(id)
  local names = {'attempts:' .. id, 'notes:' .. id, 'lines:' .. id, 'steps:' .. id}
  local taken_by_them = 0
  if redis.call('EXISTS', prefix .. names[1], prefix .. names[2], prefix .. names[3], prefix .. names[4]) > 0 then
    for _, name in ipairs(names) do
      taken_by_them = taken_by_them + memory(name)
    end
  end
  return taken_by_them
end

local function weight(job)
  local body = 'body:' .. string.format('%.0f', job.head[SEQ])
  return PLACES + #job.packed + memory(body) + memory_of_notes(job.id)
end

local ids = redis.call('ZREVRANGE', final_key(ask.queue, ask.state), ask.skip, ask.skip + ask.most - 1)
load(ids)
local taken = 0
for i, id in ipairs(ids) do
  local more = loaded[id] and weight(loaded[id]) or PLACES
  if taken + more > ask.room then
    return {i - 1, taken, 1}
  end
  taken = taken + more
end
return {#ids, taken, 0}
