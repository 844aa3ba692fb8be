-- now: the store's clock, read once in a transaction, so that all its parts agree about the time. `forebay_tx.now`
-- keeps it until the transaction ends, for statements that are sent before its value has arrived.
select set_config('forebay_tx.now', forebay.now_ms()::text, true)::bigint;
