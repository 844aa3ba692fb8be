-- Edges as stored. Edges of completed parents keep their scores. An edge with the score OPEN is met if its parent has
-- completed, or had completed before it was removed, and the outbox has no entry for it.

-- Edges of a job: position, failure policy and id of the parent, ...
local function parent_edges(id)
  local single_parent = redis.call('HGET', prefix .. 'single_parents', id)
  return single_parent and {0, single_parent} or redis.call('HGETALL', prefix .. 'parents:' .. id)
end

-- Failure policy of an edge.
local function failure_policy(id, position)
  local edge = redis.call('HGET', prefix .. 'single_parents', id)
    or redis.call('HGET', prefix .. 'parents:' .. id, position)
  return string.match(edge or '', '^%a+')
end

-- A removed job had completed, unless the outbox says otherwise.
local function has_completed(id)
  local job = load_job(id)
  return not job or job.header[STATE] == 'completed'
end

-- id -> whether the outbox has an entry for its end; nil once the outbox has become shorter since it was read.
local outbox_parents

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

-- Mark the edges of a removed and completed job as met, whatever happens to the new job with its id. Returns why the
-- call must wait: the outbox entry of the old job would be applied to the children of the new one, and again at its
-- end.
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
