-- audit_rest: how many lines are not part of the chain. Index: the unique one on positions.
select count(*) from forebay_audit where position is null;
