-- remove_finished: take one job out of the finished ones.
delete from forebay_finished
where id = :job_id
returning queue, state;
