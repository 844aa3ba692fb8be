-- next_due: when the next scheduled or retrying job of a queue is due.
-- Relies on index forebay_jobs_due (queue, run_at): one look at its head.
select run_at
from forebay_jobs
where (state = 'scheduled' or state = 'retrying')
  and queue = :queue
order by run_at
limit 1;
