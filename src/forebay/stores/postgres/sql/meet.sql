-- meet: what it means that jobs have completed, for those of their children that wait for others too; the lines of the list
-- that are done with that. A join with many parents has this for nearly all of them, in one trip.
-- A child that nothing else blocks needs a place in the order, and one of which no blocked row is seen may have ended or be
-- coming back: their edges and lines stay as they are, for a transaction. So do lines with many edges, and those of jobs
-- in sequences.
-- Guarantees: edges are locked by child and number, then blocked rows by id; that is the order of all who take these locks.
-- No open edge changes while we wait for its lock: only lines of its parent change it, and we hold these. And no edge comes
-- in late that a line concerns: who adds one holds the parent until it is committed, and so the line comes after.
-- What is updated is named by arrays that are known before: if a row has changed since this statement began, it is looked
-- at again as it is then, and nothing else is.
with lines as materialized (
  select a.number, a.parent
  from unnest(%(numbers)s::bigint[]) as w (number)
  cross join lateral (
    select number, parent
    from forebay.aftermaths
    where number = w.number and aftermath = 'completed'
    for update skip locked
  ) as a
  where not exists (select 1 from forebay.aftermaths o where o.parent = a.parent and o.number < a.number)
    and (select id from forebay.sequences where id = a.parent limit 1) is null
),
seen as materialized (
  select l.number, l.parent, e.spots
  from lines l
  cross join lateral (
    select array_agg(spot) as spots
    from (
      select ctid as spot
      from forebay.edges
      where parent = l.parent and state = 'open'
      order by parent, child, number
      limit %(few)s::bigint
    ) as s
  ) as e
  where coalesce(cardinality(e.spots), 0) < %(few)s
),
found as materialized (
  select child, parent, ctid as spot
  from forebay.edges
  where ctid = any(array(select unnest(spots) from seen)) and state = 'open'
  order by child, number
  for update
),
held as materialized (
  select id, unmet
  from forebay.blocked
  where id = any(array(select distinct child from found))
  order by id
  for update
),
-- As arrays, in which a place is found by a binary search: a join would be a loop in a loop here.
counts as materialized (
  select array_agg(child order by child) as children, array_agg(met order by child) as met
  from (select child, count(*) as met from found group by child) as f
),
stay as materialized (
  select h.id, h.unmet - c.met[width_bucket(h.id, c.children)] as unmet
  from held h
  cross join counts c
  where h.unmet > c.met[width_bucket(h.id, c.children)]
),
ids as materialized (
  select array_agg(id order by id) as ids, array_agg(unmet order by id) as unmet from stay
),
met as (
  update forebay.edges
  set state = 'met'
  where ctid = any(array(select spot from found where child = any((select ids from ids)::text[])))
),
lowered as (
  update forebay.blocked b
  set unmet = ((select unmet from ids)::bigint[])[width_bucket(b.id, (select ids from ids)::text[])]
  where b.id = any((select ids from ids)::text[])
)
delete from forebay.aftermaths
where number = any(array(
    select s.number
    from seen s
    where s.parent not in (
      select parent from found where child <> all(coalesce((select ids from ids), '{}')::text[])
    )
  ))
  -- Else an edge was seen and is another one by now.
  and (select count(*) from found) = (select coalesce(sum(cardinality(spots)), 0) from seen)
returning number;
