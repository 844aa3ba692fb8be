-- remove_dead: take one job out of the dead ones.
delete from forebay_dead
where id = :job_id
returning queue, state;
