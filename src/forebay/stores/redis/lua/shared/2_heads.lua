-- Heads as they are stored: the lengths of the first two parts in three bytes, and all values as MessagePack,
-- one after the other. So another standing can be put behind the first two parts without a look at them, and
-- jobs that are alike differ in their numbers alone.
-- The number is text of 13 digits; a time that is that of the job's creation is `false`.

local function other_than(created_at, time)
  return time ~= created_at and time
end

-- What stands before the number of a job, and what after it.
local function halves_of(head)
  local created_at = head[CREATED_AT]
  local alike = cmsgpack.pack(unpack(head, QUEUE, UNTIL_STARTED))
  local own = cmsgpack.pack(
    created_at, other_than(created_at, head[READY_AT]), other_than(created_at, head[RUN_AT]), head[RANK]
  )
  local standing = cmsgpack.pack(
    head[STATE], head[ATTEMPT], head[WORKER], head[STARTED_AT], other_than(created_at, head[UPDATED_AT]),
    unpack(head, FINISHED_AT, RESULT)
  )
  -- The last byte announces a text of 13 bytes.
  return struct.pack('>HB', #alike, #own + 14) .. alike .. '\173', own .. standing
end

local function packed_of(head)
  local before, after = halves_of(head)
  return before .. string.format('%013.0f', head[SEQ]) .. after
end

-- A damaged head raises an error or has no number.
local function unpacked(packed)
  local head = {cmsgpack.unpack(string.sub(packed, 4))}
  head[SEQ] = #head == RESULT and tonumber(head[SEQ])
  for _, field in ipairs({READY_AT, RUN_AT, UPDATED_AT}) do
    head[field] = head[field] or head[CREATED_AT]
  end
  return head
end
