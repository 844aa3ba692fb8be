-- name: job: one job, whatever table it is in. Index: the rowid of each table.
select id, seq, queue, task, state, payload, priority, options, attempt, failures, crashes, created_at,
  updated_at, ready_at, run_at, rank, age_capped, lane, worker, started_at, lease_expires_at, deadline_at,
  expires_at, unique_key, cancel_reason, errors, finished_at, reason, result
from forebay_all_jobs
where seq = :seq
  and id = :job_id;

-- name: job_without_payload: one job, whatever table it is in, without the columns that may be large: payload,
-- result and errors.
-- Index: the rowid of each table.
select id, seq, queue, task, state, x'' as payload, priority, options, attempt, failures, crashes, created_at,
  updated_at, ready_at, run_at, rank, age_capped, lane, worker, started_at, lease_expires_at, deadline_at,
  expires_at, unique_key, cancel_reason, null as errors, finished_at, reason, null as result
from forebay_all_jobs
where seq = :seq
  and id = :job_id;

-- name: job_state: one job, whatever table it is in, without payload and result. Index: the rowid of each table.
select id, seq, queue, task, state, x'' as payload, priority, options, attempt, failures, crashes, created_at,
  updated_at, ready_at, run_at, rank, age_capped, lane, worker, started_at, lease_expires_at, deadline_at,
  expires_at, unique_key, cancel_reason, errors, finished_at, reason, null as result
from forebay_all_jobs
where seq = :seq
  and id = :job_id;

-- name: peek: jobs that `claim` would take, in order, without claiming them.
-- Index: forebay_jobs_ready (queue, lane, age_capped, rank), one range from its head for each class.
select id, queue, task, state, priority, attempt, failures, created_at, run_at, started_at, finished_at,
  worker, reason, options, seq
from (
  select * from (
    select :now - rank as effective_priority, seq, id, queue, task, state, priority, attempt, failures, created_at,
      run_at, started_at, null as finished_at, worker, null as reason, options
    from forebay_jobs
    where state = 'pending' and lane is null and queue = :queue and age_capped = 0
      and (expires_at is null or expires_at > :now)
    order by rank, seq
    limit :limit
  )
  union all
  select * from (
    select :cap_ms - rank as effective_priority, seq, id, queue, task, state, priority, attempt, failures, created_at,
      run_at, started_at, null as finished_at, worker, null as reason, options
    from forebay_jobs
    where state = 'pending' and lane is null and queue = :queue and age_capped = 1
      and (expires_at is null or expires_at > :now)
    order by rank, seq
    limit :limit
  )
)
order by effective_priority desc, seq
limit :limit;

-- name: position_ahead: number of pending jobs of one class ahead of a rank, up to :limit.
-- Index: forebay_jobs_ready (queue, lane, age_capped, rank).
select count(*)
from (
  select 1
  from forebay_jobs
  where state = 'pending'
    and lane is null
    and queue = :queue
    and age_capped = :age_capped
    and rank <= :rank
    and (rank < :rank or seq < :seq)
  limit :limit
);
