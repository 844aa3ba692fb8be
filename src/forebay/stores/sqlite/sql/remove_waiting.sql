-- remove_waiting: take a job that waits out of the live ones. Never a running one.
delete from forebay_jobs
where id = :job_id
  and state in ('scheduled', 'blocked', 'pending', 'retrying')
returning queue, state, unique_key;
