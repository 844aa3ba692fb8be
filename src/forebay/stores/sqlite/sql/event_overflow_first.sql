-- event_overflow_first: add the row that stands for all omitted events of a job.
insert into forebay_events (id, kind, occurred_at, job_id, queue, detail)
values (
  1 + max(
    coalesce((select seq from sqlite_sequence where name = 'forebay_events'), 0),
    coalesce((select max(id) from forebay_audit), 0)
  ),
  'events_omitted', :occurred_at, :job_id, :queue, '1'
);
