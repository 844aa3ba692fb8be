-- schedules: schedules, all or those named (:names is a JSON array), by name after :after.
select definition, revision, is_paused, next_run_at, check_at, last_run_at, last_job_id, enqueued_runs, skipped_runs, failed_runs, created_at,
       updated_at
from forebay_schedules
where name > :after
  and (:names is null or name in (select value from json_each(:names)))
order by name
limit :limit;
