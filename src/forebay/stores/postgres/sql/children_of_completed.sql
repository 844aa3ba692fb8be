-- children_of_completed: the blocked jobs to which open edges lead from jobs that have completed, held in the order of ids, from the
-- edge on up to which each of those was looked at; how many edges that are for each, and what has to be known to release them.
-- Those that stand alike in one row, since jobs that came together mostly do. In each row: how many edges were looked at, and
-- the last of them; one row without jobs where none of them is blocked.
-- Guarantees: no open edge changes under us, though we do not hold it: only lines of its parent change it, or who finds none on
-- the list, and the caller holds these; or who deletes its child. Then its blocked row is gone, and one that came under its id
-- since is not seen by this very look.
-- Each job is looked up by itself and in the order of index edges_parent, and without a join, for the reason that `due` gives.
-- The queue is that of the row which is held: somebody may have moved the job while we waited for it, and the jobs are
-- seen as they were before. So is the priority, and `release` looks whether it still holds.
with met as materialized (
  select e.child_id, e.position
  from unnest(%(parent_ids)b::text[], %(cursor_child_ids)b::text[], %(cursor_positions)b::bigint[]) as p (parent_id, child_id, position)
  cross join lateral (
    select child_id, position
    from forebay.dependencies
    where parent_id = p.parent_id and (child_id, position) > (p.child_id, p.position) and state = 'open'
    order by parent_id, child_id, position
    limit %(limit)s
  ) as e
  limit %(limit)s
),
-- As arrays, in which a place is found by a search: a join would be a loop in a loop here. Mostly all children have the same
-- number of edges, and nothing is searched: in an array of texts that takes longer than a lock.
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
      -- Without a delay it has no time to wait for: see `due_on_release`.
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
  (select position from met order by child_id desc, position desc limit 1), a.edges, a.ids, a.unmet, a.queue, a.priority, a.failures,
  a.deadline_at, a.run_at, a.created_at, a.is_scanned, a.options
from (select 1) as always
left join groups a on true;
