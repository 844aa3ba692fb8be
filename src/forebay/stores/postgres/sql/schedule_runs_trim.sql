-- schedule_runs_trim: delete all but the newest `limit` entries of the history of a schedule.
-- Index: schedule_runs_schedule (schedule, id).
delete from forebay.schedule_runs
where id in (
  select id
  from forebay.schedule_runs
  where schedule = %(schedule)s
  order by id desc
  offset %(limit)s
);
