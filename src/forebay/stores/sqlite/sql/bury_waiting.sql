-- bury_waiting: copy a job that waits to the dead letters, because its queue was dropped.
-- Guarantees: never a running job; `remove_waiting` follows in the same transaction.
insert into forebay_dead (
  id, seq, queue, task, state, payload, priority, policy, attempt, failures, crashes, created_at,
  updated_at, ready_at, run_at, rank, capped, worker, started_at, lease_ms, extension_ms, timeout_ms,
  deadline_at, expires_at, unique_key, unique_until, once_key, metadata, tags, correlation_id, parent_id,
  cancel_reason, errors, finished_at, reason
)
select
  id, seq, queue, task, 'dead', payload, priority, policy, attempt, failures, crashes, created_at,
  :now, ready_at, run_at, rank, capped, worker, started_at, lease_ms, extension_ms, timeout_ms,
  deadline_at, expires_at, unique_key, unique_until, once_key, metadata, tags, correlation_id, parent_id,
  cancel_reason, errors, :now, :reason
from forebay_jobs
where id = :job_id
  and state in ('scheduled', 'blocked', 'pending', 'retrying');
