-- schedule_lock: lock one schedule until the transaction ends.
select definition, revision, is_paused, next_run_at, check_at, last_run_at, last_job_id, enqueued_runs, skipped_runs,
  failed_runs, created_at, updated_at
from forebay.schedules
where name = %(name)s
for update;
