-- job: jobs by id, in any table.
-- Index: the index on id of each table.
select id, seq, queue, task, state, payload, priority, options, attempt, failures, crashes, created_at,
  updated_at, ready_at, run_at, rank, age_capped, lane, worker, started_at, lease_expires_at, deadline_at,
  expires_at, unique_key, cancel_reason, errors, finished_at, reason, result
from forebay.all_jobs
where id = any(%(ids)b::text[]);
