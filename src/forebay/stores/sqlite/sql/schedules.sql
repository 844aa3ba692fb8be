-- name: schedule: one schedule by its name.
select definition, revision, is_paused, next_run_at, check_at, last_run_at, last_job_id, enqueued_runs, skipped_runs, failed_runs, created_at,
       updated_at
from forebay_schedules
where name = :name;

-- name: schedule_remove: remove a schedule; one changed row means that there was one.
delete from forebay_schedules
where name = :name;

-- name: schedule_run_add: add a line of a schedule's history: a run, or several skipped ones.
insert into forebay_schedule_runs (schedule, planned_at, status, recorded_at, job_id, reason, last_planned_at, runs)
values (:schedule, :planned_at, :status, :recorded_at, :job_id, :reason, :last_planned_at, :runs);

-- name: schedule_runs_trim: keep the newest :max_runs lines of a schedule's history.
-- Index: forebay_schedule_runs_schedule (schedule, id).
delete from forebay_schedule_runs
where id in (
  select id
  from forebay_schedule_runs
  where schedule = :schedule
  order by id desc
  limit -1 offset :max_runs
);

-- name: schedule_save: save a schedule. The caller has compared its revision under the write lock.
insert into forebay_schedules (
  name, definition, revision, is_paused, next_run_at, check_at, last_run_at, last_job_id, enqueued_runs, skipped_runs, failed_runs, created_at,
  updated_at
)
values (
  :name, :definition, :revision, :is_paused, :next_run_at, :check_at, :last_run_at, :last_job_id, :enqueued_runs, :skipped_runs, :failed_runs,
  :created_at, :updated_at
)
on conflict (name) do update
set definition = excluded.definition,
    revision = excluded.revision,
    is_paused = excluded.is_paused,
    next_run_at = excluded.next_run_at,
    check_at = excluded.check_at,
    last_run_at = excluded.last_run_at,
    last_job_id = excluded.last_job_id,
    enqueued_runs = excluded.enqueued_runs,
    skipped_runs = excluded.skipped_runs,
    failed_runs = excluded.failed_runs,
    updated_at = excluded.updated_at;

-- name: schedules: schedules, all or those named (:names is a JSON array), by name after :after.
select definition, revision, is_paused, next_run_at, check_at, last_run_at, last_job_id, enqueued_runs, skipped_runs, failed_runs, created_at,
       updated_at
from forebay_schedules
where name > :after
  and (:names is null or name in (select value from json_each(:names)))
order by name
limit :limit;

-- name: schedules_due: schedules that are due to be checked, earliest first.
-- Index: forebay_schedules_check (check_at, name).
select definition, revision, is_paused, next_run_at, check_at, last_run_at, last_job_id, enqueued_runs, skipped_runs, failed_runs, created_at,
       updated_at
from forebay_schedules
where check_at <= :now
order by check_at, name
limit :limit;
