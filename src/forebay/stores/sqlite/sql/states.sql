-- states: in what state jobs are, wherever they are; :ids is an object with the id of each by the seq in it.
-- Not by the view of all jobs, of which a join would read every row.
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
