-- dropped_queue_delayed: scheduled, retrying and blocked jobs of a dropped queue, earliest first.
-- Index: forebay_jobs_delayed (queue, run_at) and forebay_jobs_blocked (queue, run_at), one for each part.
select seq, id
from (
  select * from (
    select seq, id, run_at
    from forebay_jobs
    where (state = 'scheduled' or state = 'retrying') and queue = :queue
    order by run_at, seq
    limit :limit
  )
  union all
  select * from (
    select seq, id, run_at
    from forebay_jobs
    where state = 'blocked' and queue = :queue
    order by run_at, seq
    limit :limit
  )
)
order by run_at, seq
limit :limit;
