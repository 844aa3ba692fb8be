-- rescore_due: jobs whose rank is to be computed again, soonest first.
-- Index: jobs_rescore (rescore_at), from the low-water mark on.
select id, seq, queue, ready_at, priority, failures, deadline_at, rank, age_capped, created_at
from forebay.jobs
where rescore_at is not null and rescore_at >= %(since)s and rescore_at <= %(now)s
order by rescore_at, seq
limit %(limit)s;
