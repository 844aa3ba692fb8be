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
ended as materialized (
  select p.parent, e.children,
    coalesce(cardinality(e.children), 0) < %(few)s::bigint and p.parent <> all((select ids from others)::text[]) as is_simple
  from unnest((select ids from parents)::text[]) as p (parent)
  cross join lateral (
    select array_agg(child) as children
    from (
      select child
      from forebay.edges
      where parent = p.parent and state = 'open'
      order by parent, child, number
      limit %(few)s
    ) as s
  ) as e
),
counts as materialized (
  select array_agg(child order by child) as children, array_agg(met order by child) as met
  from (
    select child, count(*) as met
    from (select unnest(children) as child from ended where is_simple) as s
    group by child
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
judged as materialized (
  select e.parent, e.children,
    e.is_simple and not exists (
      select 1
      from unnest(e.children) as c (child)
      where ((select ids from stay)::text[])[width_bucket(c.child, (select ids from stay)::text[])] is distinct from c.child
    ) as is_over
  from ended e
),
fewer as materialized (
  select array_agg(f.child order by f.child) as ids,
    array_agg(s.unmet[width_bucket(f.child, s.ids)] - f.met order by f.child) as unmet
  from (
    select child, count(*) as met
    from (select unnest(children) as child from judged where is_over) as o
    group by child
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
  select parent, 'completed' from judged where not is_over
  returning number
)
-- How many there were; which lines were made; and whether one of them may be as simple as the others, once whoever has the
-- child in hand has let go of it.
select (select count(*) from ended), l.numbers,
  l.numbers is not null
    and (select count(*) from forebay.blocked where id = any((select children from counts)::text[]))
      > (select count(*) from held)
from (select array_agg(number) as numbers from listed) as l;
