-- schedule_runs: history of a schedule's runs, newest first.
-- Index: forebay_schedule_runs_schedule (schedule, id).
select planned_at, status, recorded_at, job_id, reason, last_planned_at, runs
from forebay_schedule_runs
where schedule = :schedule
order by id desc
limit :limit;
