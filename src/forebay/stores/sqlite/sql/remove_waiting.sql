-- remove_waiting: remove a waiting job from the live ones; never a running one.
delete from forebay_jobs
where seq = :seq
  and id = :job_id
  and (state = 'pending' or state = 'scheduled' or state = 'retrying' or state = 'blocked')
returning queue, state, unique_key;
