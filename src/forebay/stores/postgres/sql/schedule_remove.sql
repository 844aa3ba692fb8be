-- schedule_remove: forget a schedule; an answer means that there was one.
delete from forebay.schedules
where name = %(name)s
returning 1;
