-- next_due: due time of the next scheduled or retrying job of a queue.
-- Index: forebay_jobs_delayed (queue, run_at), one probe at its head.
select run_at
from forebay_jobs
where (state = 'scheduled' or state = 'retrying')
  and queue = :queue
order by run_at
limit 1;
