-- jobs_without_payload: jobs by id, in any table, without payload, result and errors. Large values are often stored
-- outside the row and need not be read.
-- Index: the index on id of each table.
select id, seq, queue, task, state, ''::bytea as payload, priority, options, attempt, failures, crashes,
  created_at, updated_at, ready_at, run_at, rank, age_capped, lane, worker, started_at, lease_expires_at, deadline_at,
  expires_at, unique_key, cancel_reason, null::text as errors, finished_at, reason, null::bytea as result
from forebay.all_jobs
where id = any(%(ids)b::text[]);
