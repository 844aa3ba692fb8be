-- children_of_completed: lock the blocked children behind the open edges of completed jobs, each from the cursor of its
-- outbox entry on. Answers the number of edges for each child and the columns that its release needs; identical jobs
-- are one row. Each row has the number of edges that were read and the last of them; one row without jobs if no child
-- is blocked.
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
