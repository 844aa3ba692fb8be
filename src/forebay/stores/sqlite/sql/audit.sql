-- name: audit: the audit log, and events that are no actions, newest first. The two share one series of ids.
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

-- name: audit_add: add one action of an operator, with the next id of the series that events share.
insert into forebay_audit (id, kind, occurred_at, job_id, queue, attempt, actor, detail, changes)
values (
  1 + max(
    coalesce((select seq from sqlite_sequence where name = 'forebay_events'), 0),
    coalesce((select max(id) from forebay_audit), 0)
  ),
  :kind, :occurred_at, :job_id, :queue, :attempt, :actor, :detail, :changes
);
