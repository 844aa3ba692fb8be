-- children_met: the blocked jobs to which open edges lead from jobs that have completed, held in the order of ids, from the
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
  select e.child, e.number
  from unnest(%(parents)b::text[], %(after_children)b::text[], %(after_numbers)b::bigint[]) as p (parent, child, number)
  cross join lateral (
    select child, number
    from forebay.edges
    where parent = p.parent and (child, number) > (p.child, p.number) and state = 'open'
    order by parent, child, number
    limit %(limit)s
  ) as e
  limit %(limit)s
),
-- As arrays, in which a place is found by a search: a join would be a loop in a loop here. Mostly all children have the same
-- number of edges, and nothing is searched: in an array of texts that takes longer than a lock.
counts as materialized (
  select array_agg(child order by child) as children, array_agg(edges order by child) as edges,
    case when min(edges) = max(edges) then min(edges) end as same
  from (select child, count(*) as edges from met group by child) as c
),
held as materialized (
  select b.id, b.unmet, b.queue, j.priority, j.failures, j.deadline_at, j.run_at, j.created_at,
    b.seq <= coalesce((select walked_to from forebay.duties where name = %(walk)s), 0) as is_walked_past, j.options
  from forebay.blocked b
  cross join lateral (
    select priority, failures, deadline_at, created_at, options,
      -- Without a delay it has no time to wait for: see `due_on_release`.
      case when run_at > greatest(created_at, updated_at) then run_at else 0 end as run_at
    from forebay.jobs
    where id = b.id
    offset 0
  ) as j
  where b.id = any((select children from counts)::text[])
  order by b.id
  for update of b
),
alike as materialized (
  select array_agg(h.id order by h.id) as ids, h.edges, h.unmet, h.queue, h.priority, h.failures, h.deadline_at, h.run_at,
    h.created_at, h.is_walked_past, h.options
  from (
    select *, coalesce(
        (select same from counts),
        ((select edges from counts)::bigint[])[width_bucket(id, (select children from counts)::text[])]
      ) as edges
    from held
  ) as h
  group by h.edges, h.unmet, h.queue, h.priority, h.failures, h.deadline_at, h.run_at, h.created_at, h.is_walked_past, h.options
)
select (select count(*) from met), (select child from met order by child desc limit 1),
  (select number from met order by child desc, number desc limit 1), a.edges, a.ids, a.unmet, a.queue, a.priority, a.failures,
  a.deadline_at, a.run_at, a.created_at, a.is_walked_past, a.options
from (select 1) as always
left join alike a on true;
