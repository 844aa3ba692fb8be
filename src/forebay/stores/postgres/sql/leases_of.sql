-- leases_of: every lease of a worker.
-- Cost: scans all running jobs. It runs only after a response was lost, and an index by worker would cost every claim.
select id, seq, queue, task, state, payload, priority, options, attempt, failures, crashes, created_at,
  updated_at, ready_at, run_at, rank, age_capped, lane, worker, started_at, lease_expires_at, deadline_at,
  expires_at, unique_key, cancel_reason, errors
from forebay.live_jobs
where id = any(array(select id from forebay.leases where worker = %(worker)s))
order by id;
