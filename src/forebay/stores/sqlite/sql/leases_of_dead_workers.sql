-- leases_of_dead_workers: leases of workers that are known to be dead (:dead is a JSON array), soonest end first.
-- Goes through all running jobs by the index on lease ends; asked only when somebody has died.
select seq, attempt, worker
from forebay_jobs
where state = 'running'
  and worker in (select value from json_each(:dead))
order by lease_expires_at, seq
limit :limit;
