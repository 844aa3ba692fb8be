-- claim: take up to :room pending jobs of one queue, or of one of its gates, and lease them to :worker.
-- Guarantees: one statement, so no job is claimed twice; greatest lead first, ties by seq.
-- Relies on index forebay_jobs_ready (queue, gate, capped, rank): one range from its head for each class. A
-- queue without capped jobs pays one empty probe.
-- One queue a call: with `queue in (...)` the planner sorts the whole backlog.
with heads as (
  select * from (
    select seq, :now - rank as lead
    from forebay_jobs
    where state = 'pending' and gate is :gate and queue = :queue and capped = 0
      and (expires_at is null or expires_at > :now)
    order by rank, seq
    limit :room
  )
  union all
  select * from (
    select seq, :cap_ms - rank as lead
    from forebay_jobs
    where state = 'pending' and gate is :gate and queue = :queue and capped = 1
      and (expires_at is null or expires_at > :now)
    order by rank, seq
    limit :room
  )
)
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
where seq in (select seq from heads order by lead desc, seq limit :room)
  and state = 'pending'
-- RETURNING promises no order; the caller sorts by lead and seq again.
returning id, seq, queue, task, payload, priority, options, attempt, failures, crashes, created_at,
  ready_at, run_at, rank, capped, lease_expires_at, deadline_at, expires_at, unique_key, cancel_reason,
  errors;
