-- remove_dead: take one job out of the dead ones.
delete from forebay_dead
where seq = :seq
  and id = :job_id
returning queue;
