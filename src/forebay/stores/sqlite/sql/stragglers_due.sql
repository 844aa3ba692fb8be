-- stragglers_due: scheduled and retrying jobs of a queue that was dropped.
-- Relies on index forebay_jobs_due (queue, run_at).
select seq, id
from forebay_jobs
where (state = 'scheduled' or state = 'retrying')
  and queue = :queue
limit :limit;
