-- delayed_take_due: scheduled and retrying jobs of a queue whose time has come, earliest first.
-- Relies on index forebay_jobs_due (queue, run_at).
select seq, state, ready_at, priority, failures, deadline_at, run_at, options
from forebay_jobs
where (state = 'scheduled' or state = 'retrying')
  and queue = :queue
  and run_at <= :now
order by run_at, seq
limit :limit;
