-- schedule_lock: one schedule as it is now; nobody else changes it before this transaction ends.
select definition, revision, is_paused, next_at, due_at, last_at, last_job_id, fired, skipped, failed, created_at,
       updated_at
from forebay.schedules
where name = %(name)s
for update;
