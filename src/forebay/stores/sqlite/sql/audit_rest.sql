-- audit_rest: number of lines outside the chain. Index: the unique one on positions.
select count(*) from forebay_audit where position is null;
