-- lease_holder: state of a job and holder of its newest attempt, to tell why a write was refused.
select queue, state, attempt, worker, run_at, started_at, updated_at from forebay_all_jobs where seq = :seq and id = :job_id;
