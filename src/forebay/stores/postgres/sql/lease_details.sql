-- lease_details: lock leases, with the columns of their jobs that a settlement needs.
-- Locks: leases by id, as everywhere, so that two batches never wait for each other.
-- Cost: no join with `jobs`, see `delayed_take_due`.
select l.id, l.attempt, l.worker, l.started_at, l.swept_from, l.cancel_reason, j.queue, j.errors, j.ready_at,
  j.priority, j.deadline_at, j.rank, j.age_capped
from forebay.leases l
cross join lateral (
  select queue, errors, ready_at, priority, deadline_at, rank, age_capped from forebay.jobs where id = l.id offset 0
) as j
where l.id = any(%(ids)b::text[])
order by l.id
for update of l;
