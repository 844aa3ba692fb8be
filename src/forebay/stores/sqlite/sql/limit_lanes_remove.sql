-- limit_lanes_remove: remove a limit lane without jobs.
delete from forebay_limit_lanes
where queue = :queue and scope = :scope;
