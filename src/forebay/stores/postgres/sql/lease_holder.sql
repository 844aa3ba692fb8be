-- lease_holder: where a job is and who held its newest attempt, to tell why a write was refused.
select queue, state, attempt, worker, run_at, started_at, updated_at from forebay.all_jobs where id = %(job_id)s;
