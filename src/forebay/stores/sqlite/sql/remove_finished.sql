-- remove_finished: remove one job from the finished ones.
delete from forebay_finished
where seq = :seq
  and id = :job_id
returning queue;
