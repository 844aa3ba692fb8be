-- sweep: take over leases that have ended, as leases of the sweeper on the same attempt.
-- Guarantees: later writes of the old holder are refused, since the worker differs; the first holder is
-- recorded for the history. Of a renewal and a sweep at the same instant, one has the write lock first and
-- the other sees its commit.
-- Index: primary key.
update forebay_jobs
set swept_from = coalesce(swept_from, worker),
    worker = :sweeper,
    lease_expires_at = :now + :lease_ms,
    updated_at = :now
where seq = :seq
  and state = 'running'
  and worker = :worker
  and attempt = :attempt
returning id, seq, queue, task, state, payload, priority, options, attempt, failures, crashes, created_at,
  updated_at, ready_at, run_at, rank, age_capped, lane, worker, started_at, lease_expires_at, deadline_at,
  expires_at, unique_key, cancel_reason, errors;
