-- stragglers: pending jobs of a queue that was dropped.
-- Relies on index forebay_jobs_ready (queue, gate, capped, rank).
select seq, id
from forebay_jobs
where state = 'pending'
  and queue = :queue
limit :limit;
