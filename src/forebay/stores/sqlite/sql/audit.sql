-- audit: events of all jobs and queues, newest first.
select number, kind, at, job_id, queue, attempt, actor, detail, changes
from forebay_events
where number < coalesce(:after, 9223372036854775807)
order by number desc
limit :limit;
