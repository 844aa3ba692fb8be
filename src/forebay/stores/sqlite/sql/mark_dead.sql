-- mark_dead: copy a running job that is not tried again to the dead letters.
-- Guarantees: only while the lease is held (state, attempt, worker).
insert into forebay_dead (
  seq, id, has_custom_id, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at,
  ready_at, run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key, cancel_reason,
  errors, finished_at, reason, payload, result
)
select
  seq, id, has_custom_id, queue, task, 'dead', priority, options, attempt, :failures, :crashes, created_at, :now,
  ready_at, run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key, cancel_reason,
  errors, :now, :reason, payload, :result
from forebay_jobs
where seq = :seq
  and id = :job_id
  and attempt = :attempt
  and worker = :worker
  and state = 'running';
