-- name: schedule_runs: runs of a schedule, newest first.
-- Index: schedule_runs_schedule (schedule, id).
select planned_at, status, recorded_at, job_id, reason, last_planned_at, runs
from forebay.schedule_runs
where schedule = :schedule
order by id desc
limit :limit;

-- name: schedules_next: time of the next check of a schedule.
-- Index: schedules_check (check_at, name).
select check_at
from forebay.schedules
where check_at > :now
order by check_at
limit 1;
