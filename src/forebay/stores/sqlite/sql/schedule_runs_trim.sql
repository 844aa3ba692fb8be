-- schedule_runs_trim: keep the newest :max_runs lines of a schedule's history.
-- Index: forebay_schedule_runs_schedule (schedule, id).
delete from forebay_schedule_runs
where id in (
  select id
  from forebay_schedule_runs
  where schedule = :schedule
  order by id desc
  limit -1 offset :max_runs
);
