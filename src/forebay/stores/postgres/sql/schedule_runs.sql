-- schedule_runs: runs of a schedule, newest first.
-- Index: schedule_runs_schedule (schedule, id).
select planned_at, status, recorded_at, job_id, reason, last_planned_at, runs
from forebay.schedule_runs
where schedule = %(schedule)s
order by id desc
limit %(limit)s;
