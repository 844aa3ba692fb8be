-- stragglers_due: scheduled and retrying jobs of a queue that was dropped, earliest first.
-- Relies on index forebay_jobs_due (queue, run_at).
select seq, id
from forebay_jobs
where (state = 'scheduled' or state = 'retrying')
  and queue = :queue
order by run_at, seq
limit :limit;
