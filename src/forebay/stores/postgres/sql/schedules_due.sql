-- schedules_due: schedules to be checked, earliest first.
-- Locks: SKIP LOCKED, so that several schedulers share the work and do not do it twice.
-- Index: schedules_check (check_at, name).
select definition, revision, is_paused, next_run_at, check_at, last_run_at, last_job_id, enqueued_runs, skipped_runs,
  failed_runs, created_at, updated_at
from forebay.schedules
where check_at <= %(now)s
order by check_at, name
limit %(limit)s
for key share skip locked;
