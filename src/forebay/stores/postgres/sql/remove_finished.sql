-- remove_finished: take one job out of the finished ones. Who gets an answer is the only one.
delete from forebay.finished
where id = %(id)s
returning finished_at, attempt, options, errors;
