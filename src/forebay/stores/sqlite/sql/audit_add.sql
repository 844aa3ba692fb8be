-- audit_add: add one action of an operator, with the next id of the series that events share.
insert into forebay_audit (id, kind, occurred_at, job_id, queue, attempt, actor, detail, changes)
values (
  1 + max(
    coalesce((select seq from sqlite_sequence where name = 'forebay_events'), 0),
    coalesce((select max(id) from forebay_audit), 0)
  ),
  :kind, :occurred_at, :job_id, :queue, :attempt, :actor, :detail, :changes
);
