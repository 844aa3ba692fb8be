-- schedule_remove: remove a schedule; one changed row means that there was one.
delete from forebay_schedules
where name = :name;
