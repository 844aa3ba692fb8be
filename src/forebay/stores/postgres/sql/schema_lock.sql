-- schema_lock: make programs that start at once migrate one after the other.
select pg_advisory_xact_lock(hashtext('forebay.schema'));
