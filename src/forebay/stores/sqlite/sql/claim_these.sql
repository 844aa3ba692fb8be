-- claim_these: lease jobs to :worker that were looked at in this transaction, which holds the write lock.
update forebay_jobs
set state = 'running',
    attempt = attempt + 1,
    worker = :worker,
    swept_from = null,
    gate = null,
    started_at = :now,
    updated_at = :now,
    -- json_valid: one damaged text must not hold up its whole queue.
    lease_expires_at = :now + coalesce(
      :lease_ms,
      iif(json_valid(options), options, null) ->> 'lease_ms',
      :queue_lease_ms
    )
where seq in (select value from json_each(:seqs))
  and state = 'pending'
-- RETURNING promises no order; the caller sorts by lead and seq again.
returning id, seq, queue, task, payload, priority, options, attempt, failures, crashes, created_at,
  ready_at, run_at, rank, capped, lease_expires_at, deadline_at, expires_at, unique_key, cancel_reason,
  errors;
