-- lease_holder: state and last worker of a job, to name the reason of a lease refusal.
select queue, state, attempt, worker, run_at, started_at, updated_at from forebay.all_jobs where id = %(job_id)s;
