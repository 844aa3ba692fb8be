-- revive_dead: copy a dead job back among the live ones, with a new seq. `attempt` goes on growing.
-- Guarantees: only a dead job; `remove_dead` follows in the same transaction.
insert into forebay_jobs (
  id, queue, task, state, payload, priority, policy, attempt, failures, crashes, created_at, updated_at,
  ready_at, run_at, rank, capped, rescore_at, lease_ms, extension_ms, timeout_ms, deadline_at, expires_at,
  unique_key, unique_until, once_key, metadata, tags, correlation_id, parent_id, errors
)
select
  id, :queue, task, :state, payload, priority, policy, attempt, :failures, :crashes, created_at, :now,
  :due_at, :due_at, :rank, :capped, :rescore_at, lease_ms, extension_ms, timeout_ms, deadline_at,
  case when expires_at > :now then expires_at end,
  unique_key, unique_until, once_key, metadata, tags, correlation_id, parent_id, errors
from forebay_dead
where id = :job_id
  and state = 'dead';
