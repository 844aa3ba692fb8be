-- limit_spend: write what is left of a rate.
update forebay.limits
set token_parts = %(token_parts)b, refilled_at = %(refilled_at)b
where scope = %(scope)b;
