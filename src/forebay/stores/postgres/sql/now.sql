-- now: the store's clock, read once in a transaction, so that all its parts agree about the time. It is kept for
-- statements that are sent before anybody has seen it; `forebay_tx.now` lasts as long as the transaction.
select set_config('forebay_tx.now', forebay.now_ms()::text, true)::bigint;
