-- resolve_completed: what it means that jobs have completed, for those of their children that wait for others too; the lines of the list
-- that are done with that. A join with many parents has this for nearly all of them, in one trip.
-- A child that nothing else blocks needs a place in the order, and one of which no blocked row is seen may have ended or be
-- coming back: lines that have to do with one are left alone, for a transaction. So are lines with many edges, those that
-- are begun, and those of jobs in sequences.
-- Guarantees: a line goes with all that it asks for, so each edge lowers the number of its child once, and need not be written.
-- No open edge changes under us, though we do not hold it: only lines of its parent change it, or who finds none on the
-- list, and we hold these. And no edge comes in late that a line concerns: who adds one holds the parent until it is
-- committed, and so the line comes after.
-- Blocked rows are locked by id. What is updated is named by arrays that are known before: if a row has changed since this
-- statement began, it is looked at again as it is then, and nothing else is.
with entries as materialized (
  select a.id, a.job_id
  from unnest(%(ids)s::bigint[]) as w (id)
  cross join lateral (
    select id, job_id
    from forebay.dependency_outbox
    where id = w.id and event = 'completed' and cursor_child_id = ''
    for update skip locked
  ) as a
  where not exists (select 1 from forebay.dependency_outbox o where o.job_id = a.job_id and o.id < a.id)
    and (select job_id from forebay.sequences where job_id = a.job_id limit 1) is null
),
children_of_entry as materialized (
  select l.id, e.child_ids
  from entries l
  cross join lateral (
    select array_agg(child_id) as child_ids
    from (
      select child_id
      from forebay.dependencies
      where parent_id = l.job_id and state = 'open'
      order by parent_id, child_id, position
      limit %(max_dependants)s::bigint
    ) as s
  ) as e
  where coalesce(cardinality(e.child_ids), 0) < %(max_dependants)s
),
-- As arrays, in which a place is found by a binary search: a join would be a loop in a loop here.
counts as materialized (
  select array_agg(child_id order by child_id) as child_ids, array_agg(met order by child_id) as met
  from (select child_id, count(*) as met from (select unnest(child_ids) as child_id from children_of_entry) as s group by child_id) as f
),
locked as materialized (
  select id, unmet
  from forebay.blocked
  where id = any((select child_ids from counts)::text[])
  order by id
  for update
),
still_blocked as materialized (
  select array_agg(h.id order by h.id) as ids, array_agg(h.unmet order by h.id) as unmet
  from locked h
  cross join counts c
  where h.unmet > c.met[width_bucket(h.id, c.child_ids)]
),
resolved as materialized (
  select s.id, s.child_ids
  from children_of_entry s
  where not exists (
    select 1
    from unnest(s.child_ids) as c (child_id)
    where ((select ids from still_blocked)::text[])[width_bucket(c.child_id, (select ids from still_blocked)::text[])] is distinct from c.child_id
  )
),
-- Without what the lines ask for that are left: fewer than were counted above, so something blocks each of these still.
fewer as materialized (
  select array_agg(f.child_id order by f.child_id) as ids,
    array_agg(s.unmet[width_bucket(f.child_id, s.ids)] - f.met order by f.child_id) as unmet
  from (select child_id, count(*) as met from (select unnest(child_ids) as child_id from resolved) as o group by child_id) as f
  cross join still_blocked s
),
decremented as (
  update forebay.blocked b
  set unmet = ((select unmet from fewer)::bigint[])[width_bucket(b.id, (select ids from fewer)::text[])]
  where b.id = any((select ids from fewer)::text[])
)
delete from forebay.dependency_outbox where id = any(array(select id from resolved)) returning id;
