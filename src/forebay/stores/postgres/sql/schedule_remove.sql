-- schedule_remove: delete a schedule; a row means that there was one.
delete from forebay.schedules
where name = %(name)s
returning 1;
