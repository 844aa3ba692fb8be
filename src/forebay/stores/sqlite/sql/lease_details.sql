-- lease_details: values to settle an attempt that did not complete, if the lease is still held.
select queue, cancel_reason, errors, started_at, swept_from, ready_at, priority, deadline_at,
  rank, age_capped
from forebay_jobs
where seq = :seq
  and id = :job_id
  and attempt = :attempt
  and worker = :worker
  and state = 'running';
