-- shorten_lock_timeout: give up a lock soon, until restore_lock_timeout or the end of the transaction.
-- 10 ms are enough for the commit of another enqueue, and a caller's transaction that has more keys than locks is left alone.
select set_config('forebay_tx.lock_timeout', current_setting('lock_timeout'), true), set_config('lock_timeout', '10ms', true);
