-- lease_details: lock leases, and what settling them has to know about their jobs. In the order of ids, as everybody
-- who locks several; so two batches never wait for each other. No join with the jobs: see `due`.
select l.id, l.attempt, l.worker, l.started_at, l.swept_from, l.cancel_reason, j.queue, j.errors, j.ready_at,
  j.priority, j.deadline_at, j.rank, j.age_capped
from forebay.leases l
cross join lateral (
  select queue, errors, ready_at, priority, deadline_at, rank, age_capped from forebay.jobs where id = l.id offset 0
) as j
where l.id = any(%(ids)b::text[])
order by l.id
for update of l;
