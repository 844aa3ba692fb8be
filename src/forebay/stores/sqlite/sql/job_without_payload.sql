-- job_without_payload: one job, whatever table it is in, without the columns that may be large: payload,
-- result and errors.
-- Index: the rowid of each table.
select id, seq, queue, task, state, x'' as payload, priority, options, attempt, failures, crashes, created_at,
  updated_at, ready_at, run_at, rank, age_capped, lane, worker, started_at, lease_expires_at, deadline_at,
  expires_at, unique_key, cancel_reason, null as errors, finished_at, reason, null as result
from forebay_all_jobs
where seq = :seq
  and id = :job_id;
