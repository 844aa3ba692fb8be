-- limit_remove: remove a limit and return it.
delete from forebay_limits where scope = :scope
returning scope, concurrency, rate, per_ms, burst, token_parts, refilled_at;
