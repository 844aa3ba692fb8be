-- revive_finished: copy a cancelled job back to the live ones, under its own seq. `attempt` goes on growing.
-- Guarantees: only a cancelled job; `remove_finished` follows in the same transaction.
insert into forebay_jobs (
  seq, id, has_custom_id, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at,
  ready_at, run_at, rank, age_capped, rescore_at, deadline_at, expires_at, unique_key, errors, unmet, payload
)
select
  seq, id, has_custom_id, :queue, task, :state, priority, options, attempt, :failures, :crashes, created_at, :now,
  :due_at, :due_at, :rank, :age_capped, :rescore_at, deadline_at, case when expires_at > :now then expires_at end,
  unique_key, errors, :unmet, payload
from forebay_finished
where seq = :seq
  and id = :job_id
  and state = 'cancelled';
