-- schedule_runs: what became of the runs of a schedule, newest first.
-- Relies on index firings_of (name, number).
select planned_at, status, recorded_at, job_id, reason, last_planned_at, runs
from forebay.schedule_runs
where schedule = %(schedule)s
order by id desc
limit %(limit)s;
