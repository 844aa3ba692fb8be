-- check_jobs: impossible jobs: in two tables, or with a lease that contradicts their state.
select id, 'is in two places' from forebay_all_jobs group by seq having count(*) > 1
union all
select id, 'has its id twice' from forebay_all_jobs group by id having count(*) > 1
union all
select id, 'is running without a lease'
from forebay_jobs
where state = 'running' and (worker is null or lease_expires_at is null or started_at is null or attempt = 0)
union all
select id, 'has a lease but is not running'
from forebay_jobs
where state <> 'running' and lease_expires_at is not null
union all
select j.id, 'is in no known queue'
from forebay_jobs j
where not exists (select 1 from forebay_queues q where q.name = j.queue);
