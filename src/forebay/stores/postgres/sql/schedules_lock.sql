-- schedules_lock: these schedules, in the order of their names; nobody else changes them before this transaction
-- ends. One that somebody else has in hand is passed over: it is being fired, or changed.
select definition, revision, is_paused, next_run_at, check_at, last_run_at, last_job_id, enqueued_runs, skipped_runs, failed_runs, created_at,
       updated_at
from forebay.schedules
where name = any(%(names)b::text[])
order by name
for update skip locked;
