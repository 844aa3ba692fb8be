-- limit_remove: delete a limit and answer it.
delete from forebay.limits where scope = %(scope)s
returning scope, concurrency, rate, per_ms, burst, token_parts, refilled_at;
