-- progress: stored progress of a job, each kind in its order.
select kind, position, name, attempt, recorded_at, body
from forebay.job_progress
where job_id = %(job_id)s
order by kind, position;
