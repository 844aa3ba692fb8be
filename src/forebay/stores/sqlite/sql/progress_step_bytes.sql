-- progress_step_bytes: bytes of all step results of a job.
-- Cost: one entry for each step; the length of a blob is known without reading it.
select coalesce(sum(length(body)), 0)
from forebay_job_progress
where seq = :seq
  and kind = 'step';
