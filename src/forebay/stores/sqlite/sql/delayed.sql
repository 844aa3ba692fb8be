-- name: promote: make one due job pending.
-- Guarantees: only a scheduled or retrying job that is due.
update forebay_jobs
set state = 'pending',
    rank = :rank,
    age_capped = :age_capped,
    rescore_at = :rescore_at,
    updated_at = max(:now, run_at + 1) -- `promoted_at` in domain/settlement.py has the reason
where seq = :seq
  and (state = 'scheduled' or state = 'retrying')
  and run_at <= :now;

-- name: delayed_take_due: due scheduled and retrying jobs of a queue, earliest first.
-- Index: forebay_jobs_delayed (queue, run_at).
select seq, state, ready_at, priority, failures, deadline_at, run_at, options
from forebay_jobs
where (state = 'scheduled' or state = 'retrying')
  and queue = :queue
  and run_at <= :now
order by run_at, seq
limit :limit;

-- name: next_due: due time of the next scheduled or retrying job of a queue.
-- Index: forebay_jobs_delayed (queue, run_at), one probe at its head.
select run_at
from forebay_jobs
where (state = 'scheduled' or state = 'retrying')
  and queue = :queue
order by run_at
limit 1;

-- name: expired: waiting jobs past their `expires_at`, earliest first.
-- Index: forebay_jobs_expires (expires_at).
select seq, id
from forebay_jobs
where expires_at is not null
  and state <> 'running'
  and expires_at <= :now
order by expires_at, seq
limit :limit;
