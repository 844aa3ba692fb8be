-- resolve_inline: resolve the ends of jobs for children that wait for other parents too, in the transaction that ended
-- them. It runs right behind `settle_and_claim`, which leaves their ids in a setting. None of these gets an outbox
-- entry.
-- Other jobs get an outbox entry here, as `settle_and_claim` does by itself: those with a child that nothing else
-- blocks, whose blocked row is not visible, or which another transaction has locked; those with many edges, in a
-- sequence, or with an earlier outbox entry.
-- Guarantees: a later statement than the one that removed the parents. An insert of an edge locks the parent until it
-- is committed. It was waited for there, so its edge and the blocked row are visible here; a later insert finds the
-- parent gone and reads how it ended. In one statement the snapshot would be older than that wait.
-- After the commit either the parent has an outbox entry, or all its open edges have lowered the numbers of their
-- children. That happens once, since a parent ends once and has no other entry that could do so.
-- Locks: SKIP LOCKED. The holder of a blocked row may wait for a job that this transaction has ended, or be a slow
-- caller transaction, which must not delay the ends of a hundred jobs. So no deadlock arises here.
-- Otherwise as `resolve_completed`.
with parents as materialized (
  select nullif(current_setting('forebay_tx.ended_ids'), '')::text[] as ids
),
-- Mostly none: one query for all of them.
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
    select child_id, count(*) as met
    from found
    where parent_id <> all((select ids from harder)::text[])
    group by child_id
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
-- Mostly none: parents with a child that does not stay blocked, or of which that is not known.
left_over as materialized (
  select h.ids || array(select parent_id from found where child_id = any(o.child_ids)) as ids
  from harder h
  cross join (
    select array(
      select c.child_id
      from unnest((select child_ids from counts)::text[]) as c (child_id)
      where ((select ids from still_blocked)::text[])[width_bucket(c.child_id, (select ids from still_blocked)::text[])]
        is distinct from c.child_id
    ) as child_ids
  ) as o
),
fewer as materialized (
  select array_agg(f.child_id order by f.child_id) as ids,
    array_agg(s.unmet[width_bucket(f.child_id, s.ids)] - f.met order by f.child_id) as unmet
  from (
    select child_id, count(*) as met
    from found
    where parent_id <> all((select ids from left_over)::text[])
    group by child_id
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
-- How many parents there were; their outbox entries; and whether one of them may be resolved inline later, once another
-- transaction has released the lock of its child.
select coalesce(cardinality((select ids from parents)), 0), l.ids,
  l.ids is not null
    and (select count(*) from forebay.blocked where id = any((select child_ids from counts)::text[]))
      > (select count(*) from locked)
from (select array_agg(id) as ids from outbox) as l;
