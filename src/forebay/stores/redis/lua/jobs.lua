#!lua flags=no-writes
-- Jobs by id, wherever they are.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: ids, is_bare (without payloads, results and errors)
-- Returns rows, without those that are not there.
load(ask.ids)
local jobs, seen = {}, {}
for _, id in ipairs(ask.ids) do
  if loaded[id] and not seen[id] then
    seen[id] = true
    jobs[#jobs + 1] = loaded[id]
  end
end
return rows_of(jobs, ask.is_bare)
