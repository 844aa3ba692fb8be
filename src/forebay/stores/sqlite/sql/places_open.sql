-- places_open: attempts at these jobs have ended: whoever claims next looks behind the gates of their scopes.
update forebay_closed
set look_at = 0
where scope in (select scope from forebay_places where id in (select value from json_each(:ids)));
