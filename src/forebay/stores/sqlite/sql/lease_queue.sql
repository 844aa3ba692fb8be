-- lease_queue: the settings of the queue a job is in, for the length of its lease.
select q.settings
from forebay_jobs j
join forebay_queues q on q.name = j.queue
where j.id = :job_id;
