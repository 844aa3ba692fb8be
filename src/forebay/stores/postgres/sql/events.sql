-- events: events of one job, in order.
select kind, occurred_at, job_id, queue, attempt, actor, detail, changes
from forebay.events
where job_id = %(job_id)s
order by id;
