-- finish_remove: remove a job from the live ones that was just copied to the finished or the dead ones.
-- Guarantees: the same guard as the copy; the transaction holds the write lock in between.
delete from forebay_jobs
where seq = :seq
  and id = :job_id
  and attempt = :attempt
  and worker = :worker
  and state = 'running'
returning queue, unique_key;
