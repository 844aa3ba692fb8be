-- Stored headers: three bytes with the lengths of the first two parts, then all values as MessagePack. So the state
-- part can be replaced without parsing the parts before it, and headers of one group differ in the seq alone.
-- The seq is text of 13 digits. A time equal to the creation time is stored as `false`.

local function false_if_equal(created_at, time)
  return time ~= created_at and time
end

-- Packed bytes before and after the seq.
local function split_header(header)
  local created_at = header[CREATED_AT]
  local common_part = cmsgpack.pack(unpack(header, QUEUE, UNTIL_STARTED))
  local own_part = cmsgpack.pack(
    created_at, false_if_equal(created_at, header[READY_AT]), false_if_equal(created_at, header[RUN_AT]), header[RANK]
  )
  local state_part = cmsgpack.pack(
    header[STATE], header[ATTEMPT], header[WORKER], header[STARTED_AT], false_if_equal(created_at, header[UPDATED_AT]),
    unpack(header, FINISHED_AT, RESULT)
  )
  -- The last byte announces a text of 13 bytes.
  return struct.pack('>HB', #common_part, #own_part + 14) .. common_part .. '\173', own_part .. state_part
end

local function pack_header(header)
  local before, after = split_header(header)
  return before .. string.format('%013.0f', header[SEQ]) .. after
end

-- A damaged header raises an error or has no seq.
local function unpack_header(packed)
  local header = {cmsgpack.unpack(string.sub(packed, 4))}
  header[SEQ] = #header == RESULT and tonumber(header[SEQ])
  for _, field in ipairs({READY_AT, RUN_AT, UPDATED_AT}) do
    header[field] = header[field] or header[CREATED_AT]
  end
  return header
end
