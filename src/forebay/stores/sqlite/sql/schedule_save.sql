-- schedule_save: save a schedule. The caller has compared its revision under the write lock.
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
