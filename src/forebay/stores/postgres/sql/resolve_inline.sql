-- resolve_inline: what it means that jobs have completed, for those of their children that wait for others too; in the transaction
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
  select nullif(current_setting('forebay_tx.ended_ids'), '')::text[] as ids
),
-- Mostly nobody: one look for all of them.
others as materialized (
  select array(
    select job_id from forebay.dependency_outbox where job_id = any((select ids from parents)::text[])
    union all
    select job_id from forebay.sequences where job_id = any((select ids from parents)::text[])
  ) as ids
),
found as materialized (
  select p.parent_id, e.child_id
  from unnest((select ids from parents)::text[]) as p (parent_id)
  cross join lateral (
    select child_id
    from forebay.dependencies
    where parent_id = p.parent_id and state = 'open'
    order by parent_id, child_id, position
    limit %(max_dependants)s::bigint
  ) as e
),
harder as materialized (
  select (select ids from others)
    || array(select parent_id from found group by parent_id having count(*) >= %(max_dependants)s::bigint) as ids
),
counts as materialized (
  select array_agg(child_id order by child_id) as child_ids, array_agg(met order by child_id) as met
  from (
    select child_id, count(*) as met from found where parent_id <> all((select ids from harder)::text[]) group by child_id
  ) as f
),
locked as materialized (
  select id, unmet
  from forebay.blocked
  where id = any((select child_ids from counts)::text[])
  order by id
  for update skip locked
),
still_blocked as materialized (
  select array_agg(h.id order by h.id) as ids, array_agg(h.unmet order by h.id) as unmet
  from locked h
  cross join counts c
  where h.unmet > c.met[width_bucket(h.id, c.child_ids)]
),
-- Mostly nothing: those with a child that does not stay blocked, or of which that is not known.
left_over as materialized (
  select h.ids || array(select parent_id from found where child_id = any(o.child_ids)) as ids
  from harder h
  cross join (
    select array(
      select c.child_id
      from unnest((select child_ids from counts)::text[]) as c (child_id)
      where ((select ids from still_blocked)::text[])[width_bucket(c.child_id, (select ids from still_blocked)::text[])] is distinct from c.child_id
    ) as child_ids
  ) as o
),
fewer as materialized (
  select array_agg(f.child_id order by f.child_id) as ids,
    array_agg(s.unmet[width_bucket(f.child_id, s.ids)] - f.met order by f.child_id) as unmet
  from (
    select child_id, count(*) as met from found where parent_id <> all((select ids from left_over)::text[]) group by child_id
  ) as f
  cross join still_blocked s
),
decremented as (
  update forebay.blocked b
  set unmet = ((select unmet from fewer)::bigint[])[width_bucket(b.id, (select ids from fewer)::text[])]
  where b.id = any((select ids from fewer)::text[])
),
outbox as (
  insert into forebay.dependency_outbox (job_id, event)
  select p.parent_id, 'completed'
  from unnest((select ids from parents)::text[]) as p (parent_id)
  where p.parent_id = any((select ids from left_over)::text[])
  returning id
)
-- How many there were; which lines were made; and whether one of them may be as simple as the others, once whoever has the
-- child in hand has let go of it.
select coalesce(cardinality((select ids from parents)), 0), l.ids,
  l.ids is not null
    and (select count(*) from forebay.blocked where id = any((select child_ids from counts)::text[]))
      > (select count(*) from locked)
from (select array_agg(id) as ids from outbox) as l;
