-- expired_lease_count: how many running jobs of a queue, or of all, have a lease that has ended.
-- Relies on index forebay_jobs_lease: what has ended stands at its head, and the next sweep takes it away.
select count(*)
from forebay_jobs
where state = 'running'
  and lease_expires_at <= :now
  and (:queue is null or queue = :queue);
