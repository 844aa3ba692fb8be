-- schedule_remove: forget a schedule; one row changed means that there was one.
delete from forebay_schedules
where name = :name;
