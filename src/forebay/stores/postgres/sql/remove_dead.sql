-- remove_dead: delete one dead job. One caller gets the row.
delete from forebay.dead
where id = %(id)s
returning finished_at, attempt, options, errors;
