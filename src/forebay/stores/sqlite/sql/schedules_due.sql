-- schedules_due: schedules that are due to be checked, earliest first.
-- Index: forebay_schedules_check (check_at, name).
select definition, revision, is_paused, next_run_at, check_at, last_run_at, last_job_id, enqueued_runs, skipped_runs, failed_runs, created_at,
       updated_at
from forebay_schedules
where check_at <= :now
order by check_at, name
limit :limit;
