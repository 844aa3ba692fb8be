-- Edges as they stand. The scores of those whose parents have completed stay as they were: an edge that says open is met if its parent has
-- completed, or had and is gone since, and the list has nothing to do for it any more.

-- The edges of a job: number, what the failure of a parent means and its id, ...
local function edges_of(id)
  local single = redis.call('HGET', prefix .. 'single_edges', id)
  return single and {0, single} or redis.call('HGETALL', prefix .. 'edges:' .. id)
end

-- What the failure of a parent means for a child.
local function policy_of(id, number)
  local edge = redis.call('HGET', prefix .. 'single_edges', id) or redis.call('HGET', prefix .. 'edges:' .. id, number)
  return string.match(edge or '', '^%a+')
end

-- One that is gone had completed, or the list says otherwise.
local function has_completed(id)
  local job = find(id)
  return not job or job.head[STATE] == 'completed'
end

local listed  -- id -> whether the list has to do with what its end means; nothing where it has become shorter since it was read

local function is_listed(id)
  if not listed then
    listed = {}
    for _, packed in ipairs(redis.call('LRANGE', prefix .. 'aftermaths', 0, -1)) do
      local parents, word = unpack(cmsgpack.unpack(packed))
      if word == 'completed' or word == 'deleted' then
        for _, parent in ipairs(type(parents) == 'table' and parents or {parents}) do
          listed[parent] = true
        end
      end
    end
  end
  return listed[id]
end

local function is_met(parent)
  return has_completed(parent) and not is_listed(parent)
end

-- A job that is gone and had completed has met its edges, whatever becomes of the new one with its id. Answers why that must wait:
-- what the list has to do for the old one would be done for those that depend on the new one, and a second time when it ends.
local function meet_later(id)
  local key = prefix .. 'behind:' .. id
  if redis.call('EXISTS', key) == 1 and is_listed(id) then
    return {'StillListed', id}
  end
  local found = redis.call('ZRANGEBYSCORE', key, OPEN, OPEN)
  if #found > 0 then
    noted[#noted + 1] = function()
      for _, name in ipairs(found) do
        redis.call('ZADD', key, MET, name)
      end
    end
  end
end
