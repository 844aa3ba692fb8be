-- blocked_among: which of these jobs are blocked, held in the order of ids, and what has to be known to release them; those
-- that stand alike in one row, since jobs that came together mostly do. No join with the jobs: see `due`.
-- The queue is that of the row which is held: somebody may have moved the job while we waited for it, and the jobs are
-- seen as they were before. So is the priority, and `release` looks whether it still holds.
with locked as materialized (
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
  where b.id = any(%(ids)b::text[])
  order by b.id
  for update of b
)
select array_agg(id order by id), unmet, queue, priority, failures, deadline_at, run_at, created_at, is_scanned, options
from locked
group by unmet, queue, priority, failures, deadline_at, run_at, created_at, is_scanned, options;
