-- limit_lanes_recheck: make the lanes of these jobs' scopes due: their attempts have ended, so the next claim
-- rechecks them.
update forebay_limit_lanes
set recheck_at = 0
where scope in (select scope from forebay_limit_slots where id in (select value from json_each(:ids)));
