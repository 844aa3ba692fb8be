-- swept_jobs: the jobs of leases that this transaction has taken over.
-- Cost: not by the view of all jobs, whose joins would read all other waiting jobs; see `delayed_take_due`.
select j.id, j.seq, j.queue, j.task, 'running', j.payload, j.priority, j.options, l.attempt, j.failures, j.crashes,
  j.created_at, l.updated_at, j.ready_at, j.run_at, j.rank, j.age_capped, null::text as lane, l.worker, l.started_at,
  l.lease_expires_at, j.deadline_at, j.expires_at, j.unique_key, l.cancel_reason, j.errors
from forebay.leases l
cross join lateral (select * from forebay.jobs where id = l.id offset 0) as j
where l.id = any(%(ids)b::text[]);
