-- progress: all that is kept of a job's notes, each kind in its order.
select kind, position, name, attempt, recorded_at, body
from forebay_job_progress
where seq = :seq
order by kind, position;
