-- leases_of: every lease of a worker. Scans all running jobs by the index on lease ends: it runs only after a
-- lost answer, and an index by worker would cost every claim.
select id, seq, queue, task, state, payload, priority, options, attempt, failures, crashes, created_at,
  updated_at, ready_at, run_at, rank, age_capped, lane, worker, started_at, lease_expires_at, deadline_at,
  expires_at, unique_key, cancel_reason, errors
from forebay_jobs
where state = 'running'
  and worker = :worker
order by id;
