-- limit_spend: save the token bucket of a limit.
update forebay_limits
set token_parts = :token_parts, refilled_at = :refilled_at
where scope = :scope;
