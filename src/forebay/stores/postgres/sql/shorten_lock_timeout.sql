-- shorten_lock_timeout: wait only briefly for a lock, until `restore_lock_timeout` or the end of the transaction. 10 ms
-- are enough for the commit of another enqueue, and a caller transaction that has more keys than locks is left alone.
select set_config('forebay_tx.lock_timeout', current_setting('lock_timeout'), true),
  set_config('lock_timeout', '10ms', true);
