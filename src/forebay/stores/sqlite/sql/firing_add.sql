-- firing_add: what became of a run, or of several.
insert into forebay_firings (name, at, status, recorded_at, job_id, reason, until_at, count)
values (:name, :planned_at, :status, :recorded_at, :job_id, :reason, :last_planned_at, :runs);
