-- errors_save: store the last ten errors of a job whose lease is held.
update forebay_jobs
set errors = :errors
where seq = :seq
  and id = :job_id
  and attempt = :attempt
  and worker = :worker
  and state = 'running';
