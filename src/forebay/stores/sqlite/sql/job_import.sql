-- name: import_dead: insert a dead job of another store.
-- Guarantees: a seq or an id that is taken fails.
insert into forebay_dead (
  -- include: imported_final_row

-- name: import_finished: insert a finished job of another store.
-- Guarantees: a seq or an id that is taken fails.
insert into forebay_finished (
  -- include: imported_final_row

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

-- fragment: imported_final_row: columns and values of an imported job that has ended.
  seq, id, has_custom_id, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at,
  ready_at, run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key, cancel_reason,
  errors, finished_at, reason, payload, result
)
values (
  :seq, :id, 1, :queue, :task, :state, :priority, :options, :attempt, :failures, :crashes, :created_at,
  :updated_at, :ready_at, :run_at, :rank, :age_capped, :worker, :started_at, :deadline_at, :expires_at, :unique_key,
  :cancel_reason, :errors, :finished_at, :reason, :payload, :result
);
