-- limit_lanes_release: a limit has changed: whoever claims next looks behind its gates, those of all values of a key.
update forebay_limit_lanes
set recheck_at = 0
where scope = :scope or (scope > :scope || ':' and scope < :scope || '<');
