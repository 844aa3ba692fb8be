-- leases_of: every lease a worker holds. Goes through all running jobs by the index on lease ends; it is
-- asked only after an answer was lost, and an index by worker would cost every claim.
select id, seq, queue, task, state, payload, priority, policy, attempt, failures, crashes, created_at,
  updated_at, ready_at, run_at, rank, capped, gate, worker, started_at, lease_expires_at, lease_ms,
  extension_ms, timeout_ms, deadline_at, expires_at, unique_key, unique_until, once_key, metadata, tags,
  correlation_id, parent_id, cancel_reason, errors
from forebay_jobs
where state = 'running'
  and worker = :worker
order by id;
