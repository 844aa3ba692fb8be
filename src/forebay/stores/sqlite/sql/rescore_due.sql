-- rescore_due: jobs whose rank is to be computed again, earliest first.
-- Index: forebay_jobs_rescore (rescore_at).
select seq, queue, state, ready_at, priority, failures, deadline_at
from forebay_jobs
where rescore_at is not null
  and rescore_at <= :now
order by rescore_at, seq
limit :limit;
