#!lua flags=no-writes
-- check_keys: check that live jobs of the queue hold its unique keys.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: queue, cursor, limit
-- Returns the next cursor ('0' at the end) and a sentence for each key that none holds.
local page = redis.call('HSCAN', prefix .. 'unique:' .. request.queue, request.cursor, 'COUNT', request.limit)
local problems = {}
for i = 1, #page[2], 2 do
  local job = load_job(page[2][i + 1])
  local header = job and job.header
  if not header or FINAL[header[STATE]] or header[QUEUE] ~= request.queue or header[UNIQUE_KEY] ~= page[2][i] then
    problems[#problems + 1] = 'key ' .. page[2][i] .. ' of queue ' .. request.queue .. ' is held by no live job'
  end
end
return {page[1], problems}
