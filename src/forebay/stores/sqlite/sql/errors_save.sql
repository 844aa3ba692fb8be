-- errors_save: the last ten errors of a job that is still under this lease.
update forebay_jobs
set errors = :errors
where seq = :seq
  and id = :job_id
  and attempt = :attempt
  and worker = :worker
  and state = 'running';
