-- remove_dead: take one job out of the dead ones. Who gets an answer is the only one.
delete from forebay.dead
where id = %(id)s
returning finished_at, attempt, options, errors;
