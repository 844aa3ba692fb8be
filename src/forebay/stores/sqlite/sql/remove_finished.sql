-- remove_finished: take one job out of the finished ones.
delete from forebay_finished
where seq = :seq
  and id = :job_id
returning queue;
