-- remove_waiting: take a job that waits out of the live ones. Never a running one.
delete from forebay_jobs
where seq = :seq
  and id = :job_id
  and (state = 'pending' or state = 'scheduled' or state = 'retrying' or state = 'blocked')
returning queue, state, unique_key;
