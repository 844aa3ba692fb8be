-- limit_slots_release: release the slots of these jobs.
delete from forebay_limit_slots
where id in (select value from json_each(:ids));
