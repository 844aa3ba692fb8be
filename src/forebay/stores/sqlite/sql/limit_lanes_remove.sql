-- limit_lanes_remove: nobody waits behind a gate any more.
delete from forebay_limit_lanes
where queue = :queue and scope = :scope;
