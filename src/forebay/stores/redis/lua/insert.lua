#!lua
-- Accept new jobs, wholly or not at all; refused by the server when its memory is full.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: lots, lot_of, keyed, first (see intake); fresh (a queue that nobody has configured);
--       on_conflict, atomic, create_queues.  2... id and body of each job
-- Returns for each job {id, whether it is new, state}, or {false, error}; for an atomic batch that is
-- refused, {error} alone.
local receipts = {}
for number = 1, #ask.lot_of do
  local receipt, refusal = accept(number, ask.on_conflict, false)
  if refusal and (ask.atomic or refusal[1] == 'StillListed') then  -- then all of it is done again
    return {'refused', refusal}
  end
  receipts[number] = receipt or {false, refusal}
end
return finish({'done', receipts})
