-- schedule: one schedule by its name.
select definition, revision, is_paused, next_at, due_at, last_at, last_job_id, fired, skipped, failed, created_at,
       updated_at
from forebay_schedules
where name = :name;
