-- insert: insert one new live job.
-- Guarantees: a seq or a brought id that is taken fails.
insert into forebay_jobs (
  has_custom_id, queue, task, state, priority, created_at, updated_at, ready_at, run_at, rank, age_capped, rescore_at,
  deadline_at, expires_at, unmet, seq, id, options, unique_key, payload
)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);
