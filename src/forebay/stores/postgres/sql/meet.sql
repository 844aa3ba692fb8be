-- meet: what it means that jobs have completed, for those of their children that wait for others too; the lines of the list
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
with lines as materialized (
  select a.number, a.parent
  from unnest(%(numbers)s::bigint[]) as w (number)
  cross join lateral (
    select number, parent
    from forebay.aftermaths
    where number = w.number and aftermath = 'completed' and after_child = ''
    for update skip locked
  ) as a
  where not exists (select 1 from forebay.aftermaths o where o.parent = a.parent and o.number < a.number)
    and (select id from forebay.sequences where id = a.parent limit 1) is null
),
seen as materialized (
  select l.number, e.children
  from lines l
  cross join lateral (
    select array_agg(child) as children
    from (
      select child
      from forebay.edges
      where parent = l.parent and state = 'open'
      order by parent, child, number
      limit %(few)s::bigint
    ) as s
  ) as e
  where coalesce(cardinality(e.children), 0) < %(few)s
),
-- As arrays, in which a place is found by a binary search: a join would be a loop in a loop here.
counts as materialized (
  select array_agg(child order by child) as children, array_agg(met order by child) as met
  from (select child, count(*) as met from (select unnest(children) as child from seen) as s group by child) as f
),
held as materialized (
  select id, unmet
  from forebay.blocked
  where id = any((select children from counts)::text[])
  order by id
  for update
),
stay as materialized (
  select array_agg(h.id order by h.id) as ids, array_agg(h.unmet order by h.id) as unmet
  from held h
  cross join counts c
  where h.unmet > c.met[width_bucket(h.id, c.children)]
),
over as materialized (
  select s.number, s.children
  from seen s
  where not exists (
    select 1
    from unnest(s.children) as c (child)
    where ((select ids from stay)::text[])[width_bucket(c.child, (select ids from stay)::text[])] is distinct from c.child
  )
),
-- Without what the lines ask for that are left: fewer than were counted above, so something blocks each of these still.
fewer as materialized (
  select array_agg(f.child order by f.child) as ids,
    array_agg(s.unmet[width_bucket(f.child, s.ids)] - f.met order by f.child) as unmet
  from (select child, count(*) as met from (select unnest(children) as child from over) as o group by child) as f
  cross join stay s
),
lowered as (
  update forebay.blocked b
  set unmet = ((select unmet from fewer)::bigint[])[width_bucket(b.id, (select ids from fewer)::text[])]
  where b.id = any((select ids from fewer)::text[])
)
delete from forebay.aftermaths where number = any(array(select number from over)) returning number;
