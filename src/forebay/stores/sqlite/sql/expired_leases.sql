-- expired_leases: leases that have ended, earliest first.
-- Index: forebay_jobs_lease (lease_expires_at), a range from its head.
select seq, attempt, worker
from forebay_jobs
where state = 'running'
  and lease_expires_at <= :now
order by lease_expires_at, seq
limit :limit;
