-- leases_of_dead_workers: leases of workers that are known to be dead (:dead is a JSON array), earliest end
-- first.
-- Scans all running jobs by the index on lease ends; it runs only after the death of a worker.
select seq, attempt, worker
from forebay_jobs
where state = 'running'
  and worker in (select value from json_each(:dead))
order by lease_expires_at, seq
limit :limit;
