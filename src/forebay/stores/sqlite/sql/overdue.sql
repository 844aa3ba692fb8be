-- overdue: leases that have ended, or whose worker is among :dead (a JSON array), soonest end first.
-- Relies on index forebay_jobs_lease (lease_expires_at).
select seq, attempt, worker
from forebay_jobs
where state = 'running'
  and (
    lease_expires_at <= :now
    or worker in (select value from json_each(:dead))
  )
order by lease_expires_at, seq
limit :limit;
