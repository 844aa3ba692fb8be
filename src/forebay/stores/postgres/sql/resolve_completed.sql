-- resolve_completed: resolve outbox entries of completed jobs whose children all wait for other parents too; answers
-- the processed entries. For a join with many parents nearly all entries are such, and this takes one round trip.
-- Left to a transaction: entries with a child that nothing else blocks, since it needs a rank; with a child whose
-- blocked row is not visible, since it may have ended or be coming back; with many edges or a cursor; and of jobs in
-- sequences.
-- Guarantees: an entry is deleted with all of its effects, so each edge lowers the number of its child once and need
-- not be written. No open edge changes meanwhile, though it is not locked. Only an entry of its parent changes it,
-- which is locked here, or a job that finds no such entry. No edge comes in late: an insert locks the parent until it
-- is committed, so the entry comes after.
-- Rows to update are named by arrays that are computed before. If a row has changed since this statement began, only
-- that row is rechecked.
-- Locks: blocked rows, by id.
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
-- Arrays, searched for a position by binary search: a join would be a nested loop here.
counts as materialized (
  select array_agg(child_id order by child_id) as child_ids, array_agg(met order by child_id) as met
  from (
    select child_id, count(*) as met
    from (select unnest(child_ids) as child_id from children_of_entry) as s
    group by child_id
  ) as f
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
    where ((select ids from still_blocked)::text[])[width_bucket(c.child_id, (select ids from still_blocked)::text[])]
      is distinct from c.child_id
  )
),
-- Without the entries that are left: fewer than counted above, so each of these stays blocked.
fewer as materialized (
  select array_agg(f.child_id order by f.child_id) as ids,
    array_agg(s.unmet[width_bucket(f.child_id, s.ids)] - f.met order by f.child_id) as unmet
  from (
    select child_id, count(*) as met from (select unnest(child_ids) as child_id from resolved) as o group by child_id
  ) as f
  cross join still_blocked s
),
decremented as (
  update forebay.blocked b
  set unmet = ((select unmet from fewer)::bigint[])[width_bucket(b.id, (select ids from fewer)::text[])]
  where b.id = any((select ids from fewer)::text[])
)
delete from forebay.dependency_outbox where id = any(array(select id from resolved)) returning id;
