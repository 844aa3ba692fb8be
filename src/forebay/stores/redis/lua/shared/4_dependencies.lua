-- Edges as they stand. The scores of those whose parents have completed stay as they were: an edge that says open is met if its parent has
-- completed, or had and is gone since, and the list has nothing to do for it any more.

-- The edges of a job: number, what the failure of a parent means and its id, ...
local function parent_edges(id)
  local single_parent = redis.call('HGET', prefix .. 'single_parents', id)
  return single_parent and {0, single_parent} or redis.call('HGETALL', prefix .. 'parents:' .. id)
end

-- What the failure of a parent means for a child.
local function failure_policy(id, position)
  local edge = redis.call('HGET', prefix .. 'single_parents', id) or redis.call('HGET', prefix .. 'parents:' .. id, position)
  return string.match(edge or '', '^%a+')
end

-- One that is gone had completed, or the list says otherwise.
local function has_completed(id)
  local job = load_job(id)
  return not job or job.header[STATE] == 'completed'
end

local outbox_parents  -- id -> whether the list has to do with what its end means; nothing where it has become shorter since it was read

local function is_in_outbox(id)
  if not outbox_parents then
    outbox_parents = {}
    for _, packed in ipairs(redis.call('LRANGE', prefix .. 'dependency_outbox', 0, -1)) do
      local parents, event = unpack(cmsgpack.unpack(packed))
      if event == 'completed' or event == 'deleted' then
        for _, parent in ipairs(type(parents) == 'table' and parents or {parents}) do
          outbox_parents[parent] = true
        end
      end
    end
  end
  return outbox_parents[id]
end

local function is_met(parent)
  return has_completed(parent) and not is_in_outbox(parent)
end

-- A job that is gone and had completed has met its edges, whatever becomes of the new one with its id. Answers why that must wait:
-- what the list has to do for the old one would be done for those that depend on the new one, and a second time when it ends.
local function defer_marking_met(id)
  local key = prefix .. 'children:' .. id
  if redis.call('EXISTS', key) == 1 and is_in_outbox(id) then
    return {'PropagationPending', id}
  end
  local names = redis.call('ZRANGEBYSCORE', key, OPEN, OPEN)
  if #names > 0 then
    deferred_writes[#deferred_writes + 1] = function()
      for _, name in ipairs(names) do
        redis.call('ZADD', key, MET, name)
      end
    end
  end
end
