-- blocked: one blocked job. A job without a delay has no time to wait for (see `due_on_release`). A generated
-- id contains its seq; an id that a caller brought is looked up.
select seq, queue, priority, failures, deadline_at,
  case when run_at > max(created_at, updated_at) then run_at else 0 end, options, unmet
from forebay_jobs
where seq = :seq and id = :job_id and state = 'blocked'
union all
select seq, queue, priority, failures, deadline_at,
  case when run_at > max(created_at, updated_at) then run_at else 0 end, options, unmet
from forebay_jobs
where has_custom_id = 1 and id = :job_id and state = 'blocked'
limit 1;
