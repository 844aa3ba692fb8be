-- limit_lanes_release: make the lanes of a changed limit due, those of all values of a key: the next claim
-- rechecks them.
update forebay_limit_lanes
set recheck_at = 0
where scope = :scope or (scope > :scope || ':' and scope < :scope || '<');
