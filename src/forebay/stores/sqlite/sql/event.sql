-- event: add one event; a job has at most :max_events of them. The id is the next of the series that the
-- audit log shares.
-- Index: forebay_events_job.
insert into forebay_events (id, kind, occurred_at, job_id, queue, attempt, actor, detail, changes)
select
  1 + max(
    coalesce((select seq from sqlite_sequence where name = 'forebay_events'), 0),
    coalesce((select max(id) from forebay_audit), 0)
  ),
  :kind, :occurred_at, :job_id, :queue, :attempt, :actor, :detail, :changes
where :job_id is null
   or (select count(*) from forebay_events where job_id = :job_id) < :max_events;
