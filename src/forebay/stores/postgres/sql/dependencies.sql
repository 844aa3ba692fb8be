-- name: edges_add: store edges of new jobs that have the same state and failure rule.
insert into forebay.dependencies (child_id, position, parent_id, on_failure, state)
select e.child_id, e.position, e.parent_id, %(on_failure)s::text, %(state)s::text
from unnest(%(child_ids)b::text[], %(positions)b::bigint[], %(parent_ids)b::text[]) as e (child_id, position, parent_id);

-- name: edges_from_parents: lock the edges in one of some states that lead from jobs.
-- Guarantees: what blocks a child is read in a later statement, so it is current once the locks of its edges are held.
-- Locks: edges by child and position, and before blocked rows; every transaction takes these locks in that order.
-- Index: dependencies_parent; one probe per job, see `delayed_take_due`.
with seen as materialized (
  select e.ctid
  from unnest(%(parent_ids)b::text[]) as p (parent_id)
  cross join unnest(%(states)b::text[]) as s (state)
  cross join lateral (
    select ctid
    from forebay.dependencies
    where parent_id = p.parent_id and state = s.state
    order by parent_id, child_id, position
    limit %(limit)s
  ) as e
  limit %(limit)s
)
select child_id, position, parent_id, on_failure, case state when 'unchecked' then 'open' else state end, ctid::text
from forebay.dependencies
where ctid = any(array(select ctid from seen)) and state = any(%(states)b::text[])
order by child_id, position
for update;

-- name: edges_lock: lock the edges to the parents of jobs, so that no other transaction settles one of them.
-- Locks: edges by child and position.
select child_id, position, parent_id, state, ctid::text
from forebay.dependencies
where child_id = any(%(child_ids)b::text[])
order by child_id, position
for update;

-- name: edges_lock_blocked: lock the edges of those of these jobs that are blocked, and count them.
-- Locks: edges by child and position, and before blocked rows; every transaction takes these locks in that order.
select count(*)
from (
  select 1
  from forebay.dependencies
  where child_id = any(array(select id from forebay.blocked where id = any(%(ids)b::text[])))
  order by child_id, position
  for update
) as e;

-- name: edges_mark_met: mark the edges from old jobs whose ids new jobs get. The old jobs had completed, since the
-- outbox has no entry for them, so their edges are met whatever happens to the new jobs.
update forebay.dependencies
set state = 'met'
where parent_id = any(%(ids)b::text[]) and state = 'open';

-- name: edges_set: set the state of edges that this transaction has locked.
update forebay.dependencies set state = %(state)s::text where ctid = any(%(ctids)b::text[]::tid[]);

-- name: edges_unchecked: lock the unchecked edges to the parents of jobs.
-- Locks: edges by child and position, and before blocked rows; every transaction takes these locks in that order.
select child_id, position, parent_id, on_failure, 'open', ctid::text
from forebay.dependencies
where child_id = any(%(child_ids)b::text[]) and state = 'unchecked'
order by child_id, position
for update;

-- name: parents: edges that lead to jobs.
-- Index: primary key.
select e.child_id, e.position, e.parent_id, e.on_failure, e.state
from unnest(%(ids)b::text[]) with ordinality as children (id, nth)
cross join lateral (select * from forebay.dependencies where child_id = children.id offset 0) as e
order by children.nth, e.position;

-- name: parents_lock: lock those of these jobs that are live until the transaction ends, and mark them
-- `has_dependants`.
-- Guarantees: a transaction that ends one of them deletes its row. Either it waits for this one and finds the mark, or
-- it was first: then the row is not found here, and a later statement finds the job among final ones. A job that a
-- caller transaction completes (`now_completing`) is not waited for and comes as not locked.
-- Locks: by id, as everywhere. A claim does not touch these rows, so it does not wait.
with busy as materialized (
  select n.id
  from (
    select w.id, hashtextextended('forebay.jobs ' || w.id, 0) as lock_id from unnest(%(ids)b::text[]) as w (id) offset 0
  ) as n
  where not case when pg_try_advisory_lock_shared(n.lock_id) then pg_advisory_unlock_shared(n.lock_id) else false end
),
locked as materialized (
  select id, has_dependants
  from forebay.jobs
  where id = any(array(select unnest(%(ids)b::text[]) except select id from busy))
  order by id
  for key share
),
marked as (
  update forebay.jobs
  set has_dependants = true
  -- By id: after a wait for the lock the row is a newer version, whose ctid this snapshot cannot see.
  where id = any(array(
    select h.id
    from (select id from locked where not has_dependants order by id) as h
    cross join lateral (select 1 from forebay.jobs where id = h.id for no key update) as j
  ))
)
select id, true from locked
union all
select id, false from busy;

-- name: dependants: edges that lead from jobs.
-- Index: dependencies_parent.
select child_id, position, parent_id, on_failure, state
from forebay.dependencies
where parent_id = any(%(ids)b::text[])
  and (
    %(after)s::text is null
    or (parent_id, child_id, position) > (%(after)s, %(after_child_id)s::text, %(after_position)s::bigint)
  )
order by parent_id, child_id, position
limit %(limit)s;

-- name: children_identical: the columns in which the next few children of a completed job may differ, of those that
-- wait for nothing else; one row if all are identical.
-- Index: dependencies_parent; one probe per job, see `delayed_take_due`.
select distinct j.queue, j.priority, j.failures, j.deadline_at, j.options
from (
  select child_id
  from forebay.dependencies
  where parent_id = %(parent_id)s and (child_id, position) > (%(cursor_child_id)s, %(cursor_position)s) and state = 'open'
  order by parent_id, child_id, position
  limit %(sample)s
) as e
cross join lateral (select id from forebay.blocked where id = e.child_id and unmet = 1 offset 0) as b
cross join lateral (
  select queue, priority, failures, deadline_at, options
  from forebay.jobs
  where id = e.child_id and run_at <= %(now)s
  offset 0
) as j
limit 2;

-- name: children_of_completed: lock the blocked children behind the open edges of completed jobs, each from the cursor
-- of its outbox entry on. Answers the number of edges for each child and the columns that its release needs; identical
-- jobs are one row. Each row has the number of edges that were read and the last of them; one row without jobs if no
-- child is blocked.
-- Guarantees: no open edge changes meanwhile, though it is not locked. Three transactions change one: an entry of its
-- parent, which the caller has locked; a job that finds no such entry; and the deletion of the child. A deletion
-- removes the blocked row too, and a row inserted since under the same id is invisible to this snapshot.
-- The queue is that of the locked row: another transaction may have moved the job while this one waited, and the
-- columns of `jobs` are older. So is the priority, which `release` compares again.
-- Locks: blocked rows, by id.
-- Index: dependencies_parent; one probe per job and no join, see `delayed_take_due`.
with met as materialized (
  select e.child_id, e.position
  from unnest(%(parent_ids)b::text[], %(cursor_child_ids)b::text[], %(cursor_positions)b::bigint[])
    as p (parent_id, child_id, position)
  cross join lateral (
    select child_id, position
    from forebay.dependencies
    where parent_id = p.parent_id and (child_id, position) > (p.child_id, p.position) and state = 'open'
    order by parent_id, child_id, position
    limit %(limit)s
  ) as e
  limit %(limit)s
),
-- Arrays, searched for a position: a join would be a nested loop here. Mostly all children have the same number of
-- edges, and nothing is searched: in an array of texts that takes longer than a lock.
counts as materialized (
  select array_agg(child_id order by child_id) as child_ids, array_agg(edges order by child_id) as edges,
    case when min(edges) = max(edges) then min(edges) end as same
  from (select child_id, count(*) as edges from met group by child_id) as c
),
locked as materialized (
  -- include: blocked_columns
  where b.id = any((select child_ids from counts)::text[])
  order by b.id
  for update of b
),
groups as materialized (
  select array_agg(h.id order by h.id) as ids, h.edges, h.unmet, h.queue, h.priority, h.failures, h.deadline_at, h.run_at,
    h.created_at, h.is_scanned, h.options
  from (
    select *, coalesce(
        (select same from counts),
        ((select edges from counts)::bigint[])[width_bucket(id, (select child_ids from counts)::text[])]
      ) as edges
    from locked
  ) as h
  group by h.edges, h.unmet, h.queue, h.priority, h.failures, h.deadline_at, h.run_at, h.created_at, h.is_scanned, h.options
)
select (select count(*) from met), (select child_id from met order by child_id desc limit 1),
  (select position from met order by child_id desc, position desc limit 1),
  a.edges, a.ids, a.unmet, a.queue, a.priority, a.failures,
  a.deadline_at, a.run_at, a.created_at, a.is_scanned, a.options
from (select 1) as always
left join groups a on true;

-- name: blocked_among: lock the blocked rows of these jobs, with the columns that their release needs; identical jobs
-- are one row, since jobs of one insert mostly are.
-- Guarantees: the queue is that of the locked row. Another transaction may have moved the job while this one waited,
-- and the columns of `jobs` are older. So is the priority, which `release` compares again.
-- Locks: blocked rows, by id.
-- Cost: no join with `jobs`, see `delayed_take_due`.
with locked as materialized (
  -- include: blocked_columns
  where b.id = any(%(ids)b::text[])
  order by b.id
  for update of b
)
select array_agg(id order by id), unmet, queue, priority, failures, deadline_at, run_at, created_at, is_scanned, options
from locked
group by unmet, queue, priority, failures, deadline_at, run_at, created_at, is_scanned, options;

-- name: blocked_decrement: set `unmet` of jobs whose blocked rows this transaction has locked. Ids are sorted.
update forebay.blocked b
set unmet = (%(unmet)b::bigint[])[width_bucket(b.id, %(ids)b::text[])]
where id = any(%(ids)b::text[]);

-- name: blocked_lock: lock a blocked job; no row if another transaction holds it.
select 1 from forebay.blocked where id = %(id)s for update skip locked;

-- name: blocked_remove: delete blocked rows that this transaction has locked.
delete from forebay.blocked where id = any(%(ids)b::text[]);

-- name: unchecked_among: those of these jobs from which unchecked edges lead.
-- Index: dependencies_parent; one probe per job, see `delayed_take_due`.
select p.parent_id
from unnest(%(parent_ids)b::text[]) as p (parent_id)
where exists (select 1 from forebay.dependencies where parent_id = p.parent_id and state = 'unchecked' offset 0);

-- name: unchecked_parents: unchecked parents of jobs.
-- Cost: one probe per child. A planner without statistics may otherwise walk all edges in the order of their parents,
-- which the answer has.
select distinct e.parent_id
from unnest(%(child_ids)b::text[]) as c (child_id)
cross join lateral (
  select parent_id from forebay.dependencies where child_id = c.child_id and state = 'unchecked' offset 0
) as e
order by e.parent_id;

-- name: update_blocked: update a blocked job whose row this transaction has locked. Its rank is computed when it is
-- released.
-- Guarantees: the narrow row is updated in place, so that a transaction that waits to release the job finds it with its
-- new queue.
with there as (
  update forebay.blocked set queue = %(queue)s where id = %(id)s and queue <> %(queue)s
)
update forebay.jobs
set queue = %(queue)s, priority = %(priority)s, options = %(options)s::text, updated_at = %(now)s
where id = %(id)s;

-- name: dead_lock: lock those of these jobs that are dead; no other transaction revives them before this one ends.
-- Locks: rows of `dead`, by id.
select id, 'dead' as state from forebay.dead where id = any(%(ids)b::text[]) order by id for key share;

-- name: release: make identical jobs pending or scheduled whose blocked rows this transaction has locked; answers how
-- many.
-- Guarantees: no job is released with a rank computed from an outdated priority. An update may have changed it between
-- the query and the lock of the caller. An update holds the blocked row, so it is committed by now, and this later
-- statement sees it. To lock the jobs before the query took 10 % more time for a fan-out.
with moved as materialized (
  update forebay.jobs
  set ready_at = %(ready_at)s,
      run_at = %(ready_at)s,
      rank = %(rank)s,
      age_capped = %(age_capped)s,
      rescore_at = %(rescore_at)s::bigint,
      updated_at = %(now)s
  where id = any(%(ids)b::text[]) and priority = %(priority)s
  returning queue, age_capped, rank, seq, id, expires_at, run_at
),
free as (
  delete from forebay.blocked where id = any(array(select id from moved))
),
later as (
  insert into forebay.delayed (id, queue, run_at, seq, state, expires_at)
  select id, queue, run_at, seq, 'scheduled', expires_at from moved where run_at > %(now)s
),
parked as (
  insert into forebay.side_lanes (id, queue, lane, age_capped, rank, seq, expires_at)
  select id, queue, %(lane)s::text, age_capped, rank, seq, expires_at from moved
  where run_at <= %(now)s and %(lane)s::text is not null
),
waiting as (
  insert into forebay.ready (queue, age_capped, rank, seq, id, expires_at)
  select queue, age_capped, rank, seq, id, expires_at from moved
  where run_at <= %(now)s and %(lane)s::text is null
)
select count(*) from moved;

-- name: release_identical: release the blocked children behind open edges of a completed job, from the cursor on, that
-- wait for nothing else and are as the caller expects. Answers how many edges were read, the last of them, how many
-- jobs were released, and how many stay blocked; `children_of_completed` finds these. It does what that and `release`
-- do, without sending the jobs to the caller and back.
-- Guarantees: as in `children_of_completed` no open edge changes meanwhile, and no blocked row is seen of a job
-- inserted under the id of a deleted one. An update may have changed a job while this statement waited for its row: the
-- newest row is rechecked, and a job that differs by now stays blocked.
-- Locks: all blocked rows by id, also of jobs that stay, so the next query of these waits for no lock.
with met as materialized (
  select child_id, position
  from forebay.dependencies
  where parent_id = %(parent_id)s and (child_id, position) > (%(cursor_child_id)s, %(cursor_position)s) and state = 'open'
  order by parent_id, child_id, position
  limit %(limit)s
),
locked as materialized (
  select id, unmet, seq
  from forebay.blocked
  where id = any(array(select child_id from met))
  order by id
  for update
),
moved as materialized (
  update forebay.jobs
  set ready_at = %(now)s,
      run_at = %(now)s,
      rank = %(rank)s,
      age_capped = %(age_capped)s,
      rescore_at = null,
      updated_at = %(now)s
  where id = any(array(
      select id
      from locked
      where unmet = 1 and seq > coalesce((select scan_position from forebay.maintenance where name = %(scan)s), 0)
    ))
    and queue = %(queue)s
    and priority = %(priority)s
    and failures = %(failures)s
    and options is not distinct from %(options)s
    and deadline_at is null
    and run_at <= %(now)s
    and created_at > %(created_after)s
  returning queue, age_capped, rank, seq, id, expires_at
),
free as (
  delete from forebay.blocked where id = any(array(select id from moved))
),
waiting as (
  insert into forebay.ready (queue, age_capped, rank, seq, id, expires_at)
  select queue, age_capped, rank, seq, id, expires_at from moved
)
select (select count(*) from met), (select child_id from met order by child_id desc limit 1),
  (select position from met order by child_id desc, position desc limit 1), m.jobs, (select count(*) from locked) - m.jobs
from (select count(*) as jobs from moved) as m;

-- name: release_lock: lock the rows of jobs that several statements are going to release.
-- Locks: by id, as everywhere.
select 1 from forebay.jobs where id = any(%(ids)b::text[]) order by id for no key update;

-- name: resolve_completed: resolve outbox entries of completed jobs whose children all wait for other parents too;
-- answers the processed entries. For a join with many parents nearly all entries are such, and this takes one round
-- trip. Left to a transaction: entries with a child that nothing else blocks, since it needs a rank; with a child whose
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
-- include: lock_blocked_children
  for update
),
-- include: still_blocked
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

-- name: resolve_inline: resolve the ends of jobs for children that wait for other parents too, in the transaction that
-- ended them. It runs right behind `settle_and_claim`, which leaves their ids in a setting. None of these gets an
-- outbox entry.
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
-- include: lock_blocked_children
  for update skip locked
),
-- include: still_blocked
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

-- fragment: lock_blocked_children: lock the blocked rows of the counted children by id; the statement says how it
-- waits.
locked as materialized (
  select id, unmet
  from forebay.blocked
  where id = any((select child_ids from counts)::text[])
  order by id

-- fragment: still_blocked: children that wait for other parents too.
still_blocked as materialized (
  select array_agg(h.id order by h.id) as ids, array_agg(h.unmet order by h.id) as unmet
  from locked h
  cross join counts c
  where h.unmet > c.met[width_bucket(h.id, c.child_ids)]
),

-- fragment: blocked_columns: blocked rows, with the columns that a release needs.
select b.id, b.unmet, b.queue, j.priority, j.failures, j.deadline_at, j.run_at, j.created_at,
  b.seq <= coalesce((select scan_position from forebay.maintenance where name = %(scan)s), 0) as is_scanned, j.options
from forebay.blocked b
cross join lateral (
  select priority, failures, deadline_at, created_at, options,
    -- A job without a delay has no time to wait for: see `due_on_release`.
    case when run_at > greatest(created_at, updated_at) then run_at else 0 end as run_at
  from forebay.jobs
  where id = b.id
  offset 0
) as j
