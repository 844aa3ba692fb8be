-- limit_spend: write what is left of a rate.
update forebay_limits
set token_parts = :token_parts, refilled_at = :refilled_at
where scope = :scope;
