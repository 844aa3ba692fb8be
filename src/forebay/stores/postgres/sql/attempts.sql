-- attempts: the bad attempts of one job, in order.
select attempt, ending, worker, started_at, ended_at, error
from forebay.attempts
where job_id = %(job_id)s
order by attempt;
