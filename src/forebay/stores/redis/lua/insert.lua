#!lua
-- insert: insert new jobs, all or none unless `atomic` is false. Refused by the server when its memory is full.
-- KEYS: 1 the namespace
-- ARGV: 1 the request: groups, group_of, keyed, first (see 7_insert); default_queue (a queue without settings);
--   on_conflict, atomic, create_queues. 2... id and body of each job
-- Returns for each job its state if it is new, {id, state} of the holder of its key, or {false, error}. An atomic batch
--   that is refused gets {error} alone.
local insert_results = {}
local unmet_pairs = {}  -- id, 1, ... of jobs that one edge blocks

-- Write the index entries of blocked jobs of one group, the last of which has this seq.
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

-- Insert the jobs from this number on as long as each belongs to the group of the previous one and depends on one new
-- job of this batch. The group must have inserted a blocked job already. Returns the number of the first job that
-- differs.
-- Does the same as `accept_job`: without an enqueue rate, a group that took one such job takes more. Graphs consist
-- mostly of these jobs, and one loop with everything in locals takes half the time.
local function accept_identical(number)
  local nearby, group_of, keyed = request.nearby, request.group_of, request.keyed
  local sequences, argv = request.sequences or {}, ARGV
  local group_number = group_of[number - 1]
  local group, known_results, results = request.groups[group_number], batch_results, insert_results
  local template = group.blocked
  if not template or group.rated_queue or not group[13] then
    return number
  end
  local format, before, after, state = string.format, template.before, template.after, template.header[STATE]
  local header_pairs, body_pairs = header_writes, body_writes
  local parent_pairs, unmet_list, entries = new_single_parents, unmet_pairs, {}
  local headers_end, bodies_end = #header_pairs, #body_pairs
  local parents_end, unmet_end, entries_end = #parent_pairs, #unmet_list, 0
  local failure_prefix, first_edge = group[13] .. ' ', edge_member('', 0)
  local body, parent, edge = prefix .. 'body:', nil, nil
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
  -- After propagation the caller repeats the whole batch.
  if refusal and (request.atomic or refusal[1] == 'PropagationPending') then
    return {'refused', refusal}
  end
  local is_new = insert_result and insert_result[2] == 1
  if is_new then
    insert_results[number] = insert_result[3]
  else
    insert_results[number] = insert_result and {insert_result[1], insert_result[3]} or {false, refusal}
  end
  number = number + 1
  if request.nearby and is_new and request.group_of[number] == request.group_of[number - 1] then
    number = accept_identical(number)
  end
end
call_in_slices('HSET', prefix .. 'unmet', unmet_pairs)
return finish({'done', insert_results})
