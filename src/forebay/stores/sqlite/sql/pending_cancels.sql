-- pending_cancels: running jobs of this worker with a stored request to cancel.
-- Index: forebay_jobs_cancel (worker), empty for nearly all workers.
select id, cancel_reason
from forebay_jobs
where cancel_reason is not null
  and state = 'running'
  and worker = :worker
order by id;
