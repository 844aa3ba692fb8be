-- schedule_run_add: what became of a run, or of several.
insert into forebay_schedule_runs (schedule, planned_at, status, recorded_at, job_id, reason, last_planned_at, runs)
values (:schedule, :planned_at, :status, :recorded_at, :job_id, :reason, :last_planned_at, :runs);
