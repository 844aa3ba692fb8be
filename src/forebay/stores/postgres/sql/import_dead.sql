-- import_dead: store a dead job of another store. Its id is reserved (`import_reserve_ids`).
insert into forebay.dead (
  id, seq, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at, ready_at,
  run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key, cancel_reason, errors, finished_at,
  reason, payload, result
)
values (
  %(id)s, %(seq)s, %(queue)s, %(task)s, %(state)s, %(priority)s, %(options)s, %(attempt)s, %(failures)s,
  %(crashes)s, %(created_at)s, %(updated_at)s, %(ready_at)s, %(run_at)s, %(rank)s, %(age_capped)s, %(worker)s,
  %(started_at)s, %(deadline_at)s, %(expires_at)s, %(unique_key)s, %(cancel_reason)s, %(errors)s, %(finished_at)s,
  %(reason)s, %(payload)s, %(result)s
);
