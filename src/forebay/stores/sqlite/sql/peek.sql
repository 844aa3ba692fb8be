-- peek: jobs that `claim` would take, in order, without claiming them.
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
