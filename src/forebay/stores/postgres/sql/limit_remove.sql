-- limit_remove: forget a limit; answers with it if there was one.
delete from forebay.limits
where scope = %(scope)b
returning scope;
