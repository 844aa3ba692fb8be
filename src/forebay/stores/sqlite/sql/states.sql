-- states: states of jobs, whatever table they are in; :ids is an object with the id of each by the seq in it.
-- Not by the view of all jobs: a join with it would read every row.
select job.id, job.state
from json_each(:ids) as one cross join forebay_jobs as job
where job.seq = one.key and job.id = one.value
union all
select job.id, job.state
from json_each(:ids) as one cross join forebay_finished as job
where job.seq = one.key and job.id = one.value
union all
select job.id, job.state
from json_each(:ids) as one cross join forebay_dead as job
where job.seq = one.key and job.id = one.value;
