-- audit_lock: whether the chain is ours until this transaction ends; a second chainer leaves it.
select pg_try_advisory_xact_lock(hashtext('forebay.audit'));
