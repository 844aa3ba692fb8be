-- dropped_queue_jobs: pending jobs of a dropped queue, first of its main order, then of its lanes.
-- Index: forebay_jobs_ready (queue, lane, age_capped, rank).
select seq, id
from forebay_jobs
where state = 'pending'
  and queue = :queue
order by lane, age_capped, rank, seq
limit :limit;
