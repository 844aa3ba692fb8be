-- name: rescore: set a new rank of a job that is still pending.
update forebay_jobs
set rank = :rank,
    age_capped = :age_capped,
    rescore_at = :rescore_at
where seq = :seq
  and state = 'pending';

-- name: rescore_drop: clear `rescore_at` of a job that is not pending: it gets a rank when it becomes pending
-- again.
update forebay_jobs
set rescore_at = null
where seq = :seq
  and state <> 'pending';

-- name: rescore_due: jobs whose rank is to be computed again, earliest first.
-- Index: forebay_jobs_rescore (rescore_at).
select seq, queue, state, ready_at, priority, failures, deadline_at
from forebay_jobs
where rescore_at is not null
  and rescore_at <= :now
order by rescore_at, seq
limit :limit;

-- name: scan_next: next live jobs of all queues by seq. By rowid, because the scan may be rewriting a queue's main
-- order.
select seq, queue, state, ready_at, priority, failures, deadline_at, created_at
from forebay_jobs
where seq > :after
order by seq
limit :limit;

-- name: rank_span: lowest and highest rank of a queue's jobs that are not age-capped, for an estimate.
-- Index: forebay_jobs_ready, one probe at each end.
select
  (select rank from forebay_jobs
   where state = 'pending' and lane is null and queue = :queue and age_capped = 0
   order by rank limit 1) as lowest,
  (select rank from forebay_jobs
   where state = 'pending' and lane is null and queue = :queue and age_capped = 0
   order by rank desc limit 1) as highest;
