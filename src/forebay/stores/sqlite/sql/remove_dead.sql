-- remove_dead: remove one job from the dead ones.
delete from forebay_dead
where seq = :seq
  and id = :job_id
returning queue;
