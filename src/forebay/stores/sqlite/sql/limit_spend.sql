-- limit_spend: write what is left of a rate.
update forebay_limits
set parts = :token_parts, at = :refilled_at
where scope = :scope;
