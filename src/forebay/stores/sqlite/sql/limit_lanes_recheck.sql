-- limit_lanes_recheck: attempts at these jobs have ended: whoever claims next looks behind the gates of their scopes.
update forebay_limit_lanes
set recheck_at = 0
where scope in (select scope from forebay_limit_slots where id in (select value from json_each(:ids)));
