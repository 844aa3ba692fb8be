-- progress: progress, log lines and step results of a job, each kind in its order.
select kind, position, name, attempt, recorded_at, body
from forebay_job_progress
where seq = :seq
order by kind, position;
