-- remove_running: remove a job from the live ones whose lease an operator has just taken away.
delete from forebay_jobs
where seq = :seq
  and id = :job_id
  and state = 'running'
returning queue, unique_key, attempt;
