-- limit_spend: store the token bucket of a limit.
update forebay.limits
set token_parts = %(token_parts)b, refilled_at = %(refilled_at)b
where scope = %(scope)b;
