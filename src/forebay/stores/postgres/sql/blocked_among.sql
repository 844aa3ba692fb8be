-- blocked_among: which of these jobs are blocked, held in the order of ids, and what has to be known to release them; those
-- that stand alike in one row, since jobs that came together mostly do. No join with the jobs: see `due`.
-- The queue is that of the blocked row, and the rest that of the job's own, and both are held before they are read: somebody
-- may have amended the job while we waited for the first, which then is as they have left it; the second would be seen as
-- it was before, since this statement began before they were done, and the job would stand where its old priority says.
-- A lock is given on the newest row alone, so the lock is what makes us read that one (`for key share` would not do: it goes
-- with an old row as well). Whoever is released is written to in this transaction anyway, and nobody locks a blocked
-- job's own row before the blocked one, but who adds a dependant, and they take jobs in the order of ids.
with held as materialized (
  select id, unmet, queue, seq from forebay.blocked where id = any(%(ids)b::text[]) order by id for update
),
told as materialized (
  select h.id, h.unmet, h.queue, j.priority, j.failures, j.deadline_at, j.run_at, j.created_at,
    h.seq <= coalesce((select walked_to from forebay.duties where name = %(walk)s), 0) as is_walked_past, j.options
  from held h
  cross join lateral (
    select priority, failures, deadline_at, run_at, created_at, options
    from forebay.jobs
    where id = h.id
    for no key update
  ) as j
)
select array_agg(id order by id), unmet, queue, priority, failures, deadline_at, run_at, created_at, is_walked_past, options
from told
group by unmet, queue, priority, failures, deadline_at, run_at, created_at, is_walked_past, options;
