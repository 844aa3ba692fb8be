-- schedules_lock: lock schedules until the transaction ends.
-- Locks: by name, SKIP LOCKED: a schedule that is being fired or changed is passed over.
select definition, revision, is_paused, next_run_at, check_at, last_run_at, last_job_id, enqueued_runs, skipped_runs,
  failed_runs, created_at, updated_at
from forebay.schedules
where name = any(%(names)b::text[])
order by name
for update skip locked;
