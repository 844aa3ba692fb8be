-- expired_lease_count: number of running jobs of a queue, or of all, whose lease has ended.
-- Index: forebay_jobs_lease: ended leases are at its head, and the next sweep takes them over.
select count(*)
from forebay_jobs
where state = 'running'
  and lease_expires_at <= :now
  and (:queue is null or queue = :queue);
