-- audit_lock: take the lock of the chain until the transaction ends, or answer false: another transaction is appending.
select pg_try_advisory_xact_lock(hashtext('forebay.audit'));
