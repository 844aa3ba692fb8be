-- limit_spend: write what is left of a rate.
update forebay.limits
set parts = %(token_parts)b, at = %(refilled_at)b
where scope = %(scope)b;
