-- schedule_run_add: add a line of a schedule's history: a run, or several skipped ones.
insert into forebay_schedule_runs (schedule, planned_at, status, recorded_at, job_id, reason, last_planned_at, runs)
values (:schedule, :planned_at, :status, :recorded_at, :job_id, :reason, :last_planned_at, :runs);
