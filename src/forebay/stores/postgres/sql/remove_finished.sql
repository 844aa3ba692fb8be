-- remove_finished: delete one finished job. One caller gets the row.
delete from forebay.finished
where id = %(id)s
returning finished_at, attempt, options, errors;
