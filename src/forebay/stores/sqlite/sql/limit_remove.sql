-- limit_remove: forget a limit; the answer is what it was.
delete from forebay_limits where scope = :scope
returning scope, concurrency, rate, per_ms, burst, token_parts, refilled_at;
