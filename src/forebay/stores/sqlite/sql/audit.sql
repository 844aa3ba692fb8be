-- audit: events of all jobs and queues, newest first.
select number, kind, at, job_id, queue, attempt, actor, detail
from forebay_events
where :after is null or number < :after
order by number desc
limit :limit;
