-- limit_remove: forget a limit; the answer is what it was.
delete from forebay.limits where scope = %(scope)s
returning scope, concurrency, rate, per_ms, burst, token_parts, refilled_at;
