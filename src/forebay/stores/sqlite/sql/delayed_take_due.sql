-- delayed_take_due: due scheduled and retrying jobs of a queue, earliest first.
-- Index: forebay_jobs_delayed (queue, run_at).
select seq, state, ready_at, priority, failures, deadline_at, run_at, options
from forebay_jobs
where (state = 'scheduled' or state = 'retrying')
  and queue = :queue
  and run_at <= :now
order by run_at, seq
limit :limit;
