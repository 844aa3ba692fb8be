-- counts_fold_lock: whether the folding is ours; whoever comes second leaves it.
select pg_try_advisory_xact_lock(hashtext('forebay.queue_count_deltas'));
