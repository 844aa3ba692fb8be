-- audit_rest: count the entries that are not part of the chain.
-- Index: audit_unchained.
select count(*) from forebay.audit where position is null;
