#!lua
-- Accept new jobs, wholly or not at all; refused by the server when its memory is full.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: lots, lot_of, keyed, first (see intake); fresh (a queue that nobody has configured);
--       on_conflict, atomic, create_queues.  2... id and body of each job
-- Returns for each job its state if it is new, {id, state} of who holds its key, or {false, error}; for an atomic batch
-- that is refused, {error} alone.
local insert_results = {}
local unmet_pairs = {}  -- id, 1, ... of jobs that one edge blocks

-- Jobs of a lot that are blocked, the last of which has this number, stand where all such jobs stand.
local function index_identical(template, entries, seq)
  local first = seq - #entries + 1
  for i = 1, #template.entries, 2 do
    for k = 1, #entries do
      defer_add(template.entries[i], template.entries[i + 1], entries[k])
    end
  end
  for block = block_of(first), block_of(seq) do
    local inside = math.min(seq, block * BLOCK + BLOCK - 1) - math.max(first, block * BLOCK) + 1
    block_changes[block] = (block_changes[block] or 0) + inside
  end
  add_count(template.count_name, #entries)
  new_dependency_count, next_seq = new_dependency_count + #entries, seq
end

-- Accept the jobs from this number on as long as each is like the one before, whose lot has taken a blocked one, and
-- depends on one new job of this batch; answers the number of the first that is not or does not. It does what `accept`
-- does: a lot that has taken such a job takes more of them, unless at a rate. A graph is mostly made of them, and one loop
-- that has all it needs at hand takes half the time.
local function accept_identical(number)
  local nearby, group_of, keyed, sequences, argv = request.nearby, request.group_of, request.keyed, request.sequences or {}, ARGV
  local group_number, group, known_results, results = group_of[number - 1], request.groups[group_of[number - 1]], batch_results, insert_results
  local template = group.blocked
  if not template or group.rated_queue or not group[13] then
    return number
  end
  local format, before, after, state = string.format, template.before, template.after, template.header[STATE]
  local header_pairs, body_pairs, parent_pairs, unmet_list, entries = header_writes, body_writes, new_single_parents, unmet_pairs, {}
  local headers_end, bodies_end, parents_end, unmet_end, entries_end = #header_pairs, #body_pairs, #parent_pairs, #unmet_list, 0
  local failure_prefix, first_edge, body, parent, edge = group[13] .. ' ', edge_member('', 0), prefix .. 'body:', nil, nil
  local seq, argument = next_seq, request.first + 2 * number - 2
  while group_of[number] == group_number do
    local distance = nearby[number]
    if type(distance) ~= 'number' or known_results[number - distance] ~= true or keyed[number] or sequences[number] then
      break
    end
    seq = seq + 1
    local id, digits = argv[argument], format('%013.0f', seq)
    if argv[argument - 2 * distance] ~= parent then
      parent = argv[argument - 2 * distance]
      edge = failure_prefix .. parent
    end
    header_pairs[headers_end + 1], header_pairs[headers_end + 2] = id, before .. digits .. after
    body_pairs[bodies_end + 1], body_pairs[bodies_end + 2] = body .. format('%.0f', seq), argv[argument + 1]
    parent_pairs[parents_end + 1], parent_pairs[parents_end + 2] = id, edge
    unmet_list[unmet_end + 1], unmet_list[unmet_end + 2] = id, '1'
    entries_end = entries_end + 1
    entries[entries_end] = digits .. ':' .. id
    add_child_edge(parent, OPEN, id .. first_edge)
    known_results[number], results[number] = true, state
    headers_end, bodies_end, parents_end, unmet_end = headers_end + 2, bodies_end + 2, parents_end + 2, unmet_end + 2
    number, argument = number + 1, argument + 2
  end
  if entries_end > 0 then
    index_identical(template, entries, seq)
  end
  return number
end

local repeated = find_repeated_id()
if repeated then
  return {'refused', repeated}
end
local number, last = 1, #request.group_of
while number <= last do
  local insert_result, refusal = accept_job(number, request.on_conflict, false)
  if refusal and (request.atomic or refusal[1] == 'PropagationPending') then  -- then all of it is done again
    return {'refused', refusal}
  end
  insert_results[number] = insert_result and (insert_result[2] == 1 and insert_result[3] or {insert_result[1], insert_result[3]}) or {false, refusal}
  number = number + 1
  if request.nearby and insert_result and insert_result[2] == 1 and request.group_of[number] == request.group_of[number - 1] then
    number = accept_identical(number)
  end
end
call_in_slices('HSET', prefix .. 'unmet', unmet_pairs)
return finish({'done', insert_results})
