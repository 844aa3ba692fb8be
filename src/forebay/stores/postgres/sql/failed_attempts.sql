-- failed_attempts: failed attempts of one job, in order.
select attempt, outcome, worker, started_at, ended_at, error
from forebay.failed_attempts
where job_id = %(job_id)s
order by attempt;
