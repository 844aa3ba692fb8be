-- meet_now: what it means that jobs have completed, for those of their children that wait for others too; in the transaction
-- that has ended them, right behind `exchange`, which leaves their ids in a setting. Nothing of it comes on the list.
-- What is more than that is put on the list here, as `exchange` does by itself: a child that nothing else blocks, one of which no
-- blocked row is seen, or that others have in hand; a parent with many edges, in a sequence, or about which the list has
-- something to do before.
-- Guarantees: a later statement than the one that has removed the parents. Who adds an edge holds the parent until it is
-- committed: it was waited for there, and its edge is seen here, with the blocked row; whoever comes later finds the parent gone
-- and asks how it has ended. In one statement the look would be older than that wait.
-- Either the parent is on the list once this is committed, or all its open edges have lowered the numbers of their children: once,
-- since a parent ends once, and no other line of it is there that could do so again.
-- It waits for nobody (`skip locked`): whoever holds a blocked row may wait for a job that this transaction has ended, or be a
-- caller who takes their time, and the ends of a hundred jobs must not depend on them. So no circle is closed here.
-- The rest is as in `meet`; see there.
with parents as materialized (
  select nullif(current_setting('forebay_tx.ended'), '')::text[] as ids
),
-- Mostly nobody: one look for all of them.
others as materialized (
  select array(
    select parent from forebay.aftermaths where parent = any((select ids from parents)::text[])
    union all
    select id from forebay.sequences where id = any((select ids from parents)::text[])
  ) as ids
),
found as materialized (
  select p.parent, e.child
  from unnest((select ids from parents)::text[]) as p (parent)
  cross join lateral (
    select child
    from forebay.edges
    where parent = p.parent and state = 'open'
    order by parent, child, number
    limit %(few)s::bigint
  ) as e
),
harder as materialized (
  select (select ids from others)
    || array(select parent from found group by parent having count(*) >= %(few)s::bigint) as ids
),
counts as materialized (
  select array_agg(child order by child) as children, array_agg(met order by child) as met
  from (
    select child, count(*) as met from found where parent <> all((select ids from harder)::text[]) group by child
  ) as f
),
held as materialized (
  select id, unmet
  from forebay.blocked
  where id = any((select children from counts)::text[])
  order by id
  for update skip locked
),
stay as materialized (
  select array_agg(h.id order by h.id) as ids, array_agg(h.unmet order by h.id) as unmet
  from held h
  cross join counts c
  where h.unmet > c.met[width_bucket(h.id, c.children)]
),
-- Mostly nothing: those with a child that does not stay blocked, or of which that is not known.
left_over as materialized (
  select h.ids || array(select parent from found where child = any(o.children)) as ids
  from harder h
  cross join (
    select array(
      select c.child
      from unnest((select children from counts)::text[]) as c (child)
      where ((select ids from stay)::text[])[width_bucket(c.child, (select ids from stay)::text[])] is distinct from c.child
    ) as children
  ) as o
),
fewer as materialized (
  select array_agg(f.child order by f.child) as ids,
    array_agg(s.unmet[width_bucket(f.child, s.ids)] - f.met order by f.child) as unmet
  from (
    select child, count(*) as met from found where parent <> all((select ids from left_over)::text[]) group by child
  ) as f
  cross join stay s
),
lowered as (
  update forebay.blocked b
  set unmet = ((select unmet from fewer)::bigint[])[width_bucket(b.id, (select ids from fewer)::text[])]
  where b.id = any((select ids from fewer)::text[])
),
listed as (
  insert into forebay.aftermaths (parent, aftermath)
  select p.parent, 'completed'
  from unnest((select ids from parents)::text[]) as p (parent)
  where p.parent = any((select ids from left_over)::text[])
  returning number
)
-- How many there were; which lines were made; and whether one of them may be as simple as the others, once whoever has the
-- child in hand has let go of it.
select coalesce(cardinality((select ids from parents)), 0), l.numbers,
  l.numbers is not null
    and (select count(*) from forebay.blocked where id = any((select children from counts)::text[]))
      > (select count(*) from held)
from (select array_agg(number) as numbers from listed) as l;
