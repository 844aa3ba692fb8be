#!lua flags=no-writes
-- Whether the unique keys of a queue are held by live jobs of that queue.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: queue, cursor, most
-- Returns the next cursor ('0' at the end) and a sentence for each that is not.
local page = redis.call('HSCAN', prefix .. 'unique:' .. ask.queue, ask.cursor, 'COUNT', ask.most)
local found = {}
for i = 1, #page[2], 2 do
  local job = find(page[2][i + 1])
  local head = job and job.head
  if not head or FINAL[head[STATE]] or head[QUEUE] ~= ask.queue or head[UNIQUE_KEY] ~= page[2][i] then
    found[#found + 1] = 'key ' .. page[2][i] .. ' of queue ' .. ask.queue .. ' is held by no live job'
  end
end
return {page[1], found}
