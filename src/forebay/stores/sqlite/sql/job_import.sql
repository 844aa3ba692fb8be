-- name: import_dead: insert a dead job of another store.
-- Guarantees: a seq or an id that is taken fails.
insert into forebay_dead (
  seq, id, has_custom_id, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at,
  ready_at, run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key, cancel_reason,
  errors, finished_at, reason, payload, result
)
values (
  :seq, :id, 1, :queue, :task, :state, :priority, :options, :attempt, :failures, :crashes, :created_at,
  :updated_at, :ready_at, :run_at, :rank, :age_capped, :worker, :started_at, :deadline_at, :expires_at, :unique_key,
  :cancel_reason, :errors, :finished_at, :reason, :payload, :result
);

-- name: import_finished: insert a finished job of another store.
-- Guarantees: a seq or an id that is taken fails.
insert into forebay_finished (
  seq, id, has_custom_id, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at,
  ready_at, run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key, cancel_reason,
  errors, finished_at, reason, payload, result
)
values (
  :seq, :id, 1, :queue, :task, :state, :priority, :options, :attempt, :failures, :crashes, :created_at,
  :updated_at, :ready_at, :run_at, :rank, :age_capped, :worker, :started_at, :deadline_at, :expires_at, :unique_key,
  :cancel_reason, :errors, :finished_at, :reason, :payload, :result
);

-- name: import_live: insert a waiting job of another store.
-- Guarantees: a seq or an id that is taken fails.
insert into forebay_jobs (
  seq, id, has_custom_id, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at,
  ready_at, run_at, rank, age_capped, rescore_at, worker, started_at, deadline_at, expires_at, unique_key, errors,
  unmet, payload
)
values (
  :seq, :id, 1, :queue, :task, :state, :priority, :options, :attempt, :failures, :crashes, :created_at,
  :updated_at, :ready_at, :run_at, :rank, :age_capped, :rescore_at, :worker, :started_at, :deadline_at, :expires_at,
  :unique_key, :errors, :unmet, :payload
);
