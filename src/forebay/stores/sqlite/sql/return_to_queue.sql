-- return_to_queue: put a running job back to waiting: handed back, snoozed, or to be retried.
-- Guarantees: only while the lease is held (state, attempt, worker). `ready_at` is kept. The worker stays on
-- the row, so that a repeated settlement is recognised.
update forebay_jobs
set state = :state,
    failures = :failures,
    crashes = :crashes,
    run_at = :run_at,
    rank = :rank,
    age_capped = :age_capped,
    rescore_at = :rescore_at,
    lane = :lane,
    lease_expires_at = null,
    updated_at = :now
where seq = :seq
  and id = :job_id
  and attempt = :attempt
  and worker = :worker
  and state = 'running';
