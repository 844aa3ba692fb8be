-- schedule_runs_trim: keep the newest :kept lines of a schedule's history.
-- Relies on index forebay_firings_of (name, number).
delete from forebay_schedule_runs
where id in (
  select id
  from forebay_schedule_runs
  where schedule = :schedule
  order by id desc
  limit -1 offset :max_runs
);
