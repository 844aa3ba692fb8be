-- places_free: these jobs do not run any more.
delete from forebay_places
where id in (select value from json_each(:ids));
