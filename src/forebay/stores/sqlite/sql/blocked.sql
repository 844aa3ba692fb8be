-- blocked: a job that is blocked. A generated id contains its seq; one that a caller brought is looked up.
select seq, queue, priority, failures, deadline_at, run_at, options, unmet
from forebay_jobs
where seq = :seq and id = :job_id and state = 'blocked'
union all
select seq, queue, priority, failures, deadline_at, run_at, options, unmet
from forebay_jobs
where by_id = 1 and id = :job_id and state = 'blocked'
limit 1;
