-- counts_fold_lock: take the lock of the folding, or answer false: another transaction is folding.
select pg_try_advisory_xact_lock(hashtext('forebay.queue_count_deltas'));
