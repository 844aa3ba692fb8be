-- schedule_runs: what became of the runs of a schedule, newest first.
-- Relies on index forebay_firings_of (name, number).
select planned_at, status, recorded_at, job_id, reason, last_planned_at, runs
from forebay_schedule_runs
where schedule = :schedule
order by id desc
limit :limit;
