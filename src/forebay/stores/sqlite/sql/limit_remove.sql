-- limit_remove: forget a limit.
delete from forebay_limits
where scope = :scope;
