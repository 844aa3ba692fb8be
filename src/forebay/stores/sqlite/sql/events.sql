-- events: the rare things that happened to one job, in order. A deletion belongs to the audit log alone.
select kind, at, job_id, queue, attempt, actor, detail, changes
from forebay_events
where job_id = :job_id
  and kind <> 'deleted'
order by number;
