#!lua flags=no-writes
-- The jobs of one block of seqs, newest first; with the bodies, since readers look into them.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: below (a seq, false for the newest), most, most_bytes
-- Returns how far it has looked (false at the end) and rows.
local below = ask.below or tonumber(redis.call('GET', prefix .. 'seq') or 0) + 1
local block = redis.call(
  'ZRANGE', prefix .. 'blocks', block_of(below - 1), '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1
)[1]
if not block then
  return {false, {}}
end
local last = math.min(below - 1, (block + 1) * BLOCK - 1)
local first = math.max(block * BLOCK, last - ask.most + 1)
local ids, size = {}, 0
for seq = last, first, -1 do
  local id = id_of_body(seq)
  if id then
    ids[#ids + 1] = id
    size = size + redis.call('STRLEN', body_key(seq))
  end
  -- A look is no longer for large payloads.
  if size >= ask.most_bytes then
    first = seq
    break
  end
end
load(ids)
local jobs = {}
for _, id in ipairs(ids) do
  if loaded[id] then
    jobs[#jobs + 1] = loaded[id]
  end
end
return {first, rows_of(jobs)}
