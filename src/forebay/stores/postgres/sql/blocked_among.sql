-- blocked_among: lock the blocked rows of these jobs, with the columns that their release needs; identical jobs are one
-- row, since jobs of one insert mostly are.
-- Guarantees: the queue is that of the locked row. Another transaction may have moved the job while this one waited,
-- and the columns of `jobs` are older. So is the priority, which `release` compares again.
-- Locks: blocked rows, by id.
-- Cost: no join with `jobs`, see `delayed_take_due`.
with locked as materialized (
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
  where b.id = any(%(ids)b::text[])
  order by b.id
  for update of b
)
select array_agg(id order by id), unmet, queue, priority, failures, deadline_at, run_at, created_at, is_scanned, options
from locked
group by unmet, queue, priority, failures, deadline_at, run_at, created_at, is_scanned, options;
