-- job: one job, wherever it is. Relies on the id index of each table.
select id, seq, queue, task, state, payload, priority, policy, attempt, failures, crashes, created_at,
  updated_at, ready_at, run_at, rank, capped, gate, worker, started_at, lease_expires_at, lease_ms,
  extension_ms, timeout_ms, deadline_at, expires_at, unique_key, unique_until, once_key, metadata, tags,
  correlation_id, parent_id, cancel_reason, errors, finished_at, reason, result
from forebay_all_jobs
where id = :id;
