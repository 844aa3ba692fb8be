-- finish_remove: take a job that was just copied to the finished or the dead out of the live ones.
-- The guard is the same as in the copy; the transaction holds the write lock in between.
delete from forebay_jobs
where seq = :seq
  and id = :job_id
  and attempt = :attempt
  and worker = :worker
  and state = 'running'
returning queue, unique_key;
