-- limit_slots_release: these jobs do not run any more.
delete from forebay_limit_slots
where id in (select value from json_each(:ids));
