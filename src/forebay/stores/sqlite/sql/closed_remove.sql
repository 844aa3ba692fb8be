-- closed_remove: nobody waits behind a gate any more.
delete from forebay_closed
where queue = :queue and scope = :scope;
