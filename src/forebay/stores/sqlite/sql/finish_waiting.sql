-- finish_waiting: copy a waiting job to the finished ones, as cancelled.
-- Guarantees: never a running job; `remove_waiting` follows in the same transaction.
insert into forebay_finished (
  seq, id, has_custom_id, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at,
  ready_at, run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key, cancel_reason,
  errors, finished_at, reason, payload, result
)
select
  seq, id, has_custom_id, queue, task, 'cancelled', priority, options, attempt, failures, crashes, created_at, :now,
  ready_at, run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key, cancel_reason,
  errors, :now, :reason, payload, null
from forebay_jobs
where seq = :seq
  and id = :job_id
  and (state = 'pending' or state = 'scheduled' or state = 'retrying' or state = 'blocked');
