-- limit_spend: write what is left of a rate.
update forebay.limits
set parts = %(parts)b, at = %(at)b
where scope = %(scope)b;
