-- limit_spend: write what is left of a rate.
update forebay_limits
set parts = :parts, at = :at
where scope = :scope;
