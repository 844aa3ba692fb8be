#!lua
-- Accept new jobs, wholly or not at all; refused by the server when its memory is full.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: lots, lot_of, keyed, first (see intake); fresh (a queue that nobody has configured);
--       on_conflict, atomic, create_queues.  2... id and body of each job
-- Returns for each job its state if it is new, {id, state} of who holds its key, or {false, error}; for an atomic batch
-- that is refused, {error} alone.
local receipts = {}
local waiting = {}  -- id, 1, ... of jobs that one edge blocks

-- Jobs of a lot that are blocked, the last of which has this number, stand where all such jobs stand.
local function stand_alike(alike, entries, seq)
  local first = seq - #entries + 1
  for i = 1, #alike.places, 2 do
    for k = 1, #entries do
      add_later(alike.places[i], alike.places[i + 1], entries[k])
    end
  end
  for block = block_of(first), block_of(seq) do
    local inside = math.min(seq, block * BLOCK + BLOCK - 1) - math.max(first, block * BLOCK) + 1
    blocks[block] = (blocks[block] or 0) + inside
  end
  tally(alike.name, #entries)
  edge_count, next_seq = edge_count + #entries, seq
end

-- Accept the jobs from this number on as long as each is like the one before, whose lot has taken a blocked one, and
-- depends on one new job of this batch; answers the number of the first that is not or does not. It does what `accept`
-- does: a lot that has taken such a job takes more of them, unless at a rate. A graph is mostly made of them, and one loop
-- that has all it needs at hand takes half the time.
local function accept_alike(number)
  local near, lot_of, keyed, sequences, argv = ask.near, ask.lot_of, ask.keyed, ask.sequences or {}, ARGV
  local lot_number, lot, known, said = lot_of[number - 1], ask.lots[lot_of[number - 1]], accepted, receipts
  local alike = lot.blocked
  if not alike or lot.rated or not lot[13] then
    return number
  end
  local format, before, after, state = string.format, alike.before, alike.after, alike.head[STATE]
  local packs, texts, singles, counts, entries = heads, bodies, single_edges, waiting, {}
  local packs_to, texts_to, singles_to, counts_to, entries_to = #packs, #texts, #singles, #counts, 0
  local how, of_first, body, parent, edge = lot[13] .. ' ', edge_name('', 0), prefix .. 'body:', nil, nil
  local seq, argument = next_seq, ask.first + 2 * number - 2
  while lot_of[number] == lot_number do
    local away = near[number]
    if type(away) ~= 'number' or known[number - away] ~= true or keyed[number] or sequences[number] then
      break
    end
    seq = seq + 1
    local id, digits = argv[argument], format('%013.0f', seq)
    if argv[argument - 2 * away] ~= parent then
      parent = argv[argument - 2 * away]
      edge = how .. parent
    end
    packs[packs_to + 1], packs[packs_to + 2] = id, before .. digits .. after
    texts[texts_to + 1], texts[texts_to + 2] = body .. format('%.0f', seq), argv[argument + 1]
    singles[singles_to + 1], singles[singles_to + 2] = id, edge
    counts[counts_to + 1], counts[counts_to + 2] = id, '1'
    entries_to = entries_to + 1
    entries[entries_to] = digits .. ':' .. id
    put_behind(parent, OPEN, id .. of_first)
    known[number], said[number] = true, state
    packs_to, texts_to, singles_to, counts_to = packs_to + 2, texts_to + 2, singles_to + 2, counts_to + 2
    number, argument = number + 1, argument + 2
  end
  if entries_to > 0 then
    stand_alike(alike, entries, seq)
  end
  return number
end

local taken = repeated_id()
if taken then
  return {'refused', taken}
end
local number, last = 1, #ask.lot_of
while number <= last do
  local receipt, refusal = accept(number, ask.on_conflict, false)
  if refusal and (ask.atomic or refusal[1] == 'StillListed') then  -- then all of it is done again
    return {'refused', refusal}
  end
  receipts[number] = receipt and (receipt[2] == 1 and receipt[3] or {receipt[1], receipt[3]}) or {false, refusal}
  number = number + 1
  if ask.near and receipt and receipt[2] == 1 and ask.lot_of[number] == ask.lot_of[number - 1] then
    number = accept_alike(number)
  end
end
send('HSET', prefix .. 'unmet', waiting)
return finish({'done', receipts})
