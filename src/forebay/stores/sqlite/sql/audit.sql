-- audit: the audit log, and events that are no actions, newest first. The two share one series of ids.
select id, kind, occurred_at, job_id, queue, attempt, actor, detail, changes
from forebay_audit
where id < coalesce(:after, 9223372036854775807)
union all
select id, kind, occurred_at, job_id, queue, attempt, actor, detail, changes
from forebay_events
where id < coalesce(:after, 9223372036854775807)
  and kind not in (select value from json_each(:actions))
order by id desc
limit :limit;
