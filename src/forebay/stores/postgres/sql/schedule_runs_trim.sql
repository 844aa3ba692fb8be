-- schedule_runs_trim: keep the newest %(kept)s lines of a schedule's history.
-- Relies on index firings_of (name, number).
delete from forebay.schedule_runs
where id in (
  select id
  from forebay.schedule_runs
  where schedule = %(schedule)s
  order by id desc
  offset %(limit)s
);
