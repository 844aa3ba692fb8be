-- dropped_queue_jobs: pending jobs of a queue that was dropped, as they stand in its order, then behind its gates.
-- Relies on index forebay_jobs_ready (queue, gate, capped, rank).
select seq, id
from forebay_jobs
where state = 'pending'
  and queue = :queue
order by lane, age_capped, rank, seq
limit :limit;
