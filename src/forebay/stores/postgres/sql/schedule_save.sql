-- schedule_save: store a schedule. A row means that it is stored: of two inserts of one name at once the second waits
-- for the first and then finds another revision.
insert into forebay.schedules as s (
  name, definition, revision, is_paused, next_run_at, check_at, last_run_at, last_job_id, enqueued_runs, skipped_runs,
  failed_runs, created_at, updated_at
)
values (
  %(name)s, %(definition)s, %(revision)s, %(is_paused)s, %(next_run_at)s, %(check_at)s, %(last_run_at)s, %(last_job_id)s,
  %(enqueued_runs)s, %(skipped_runs)s, %(failed_runs)s, %(created_at)s, %(updated_at)s
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
    updated_at = excluded.updated_at
where s.revision = excluded.revision - 1
returning 1;
