-- restore_lock_timeout: wait for locks as long as before shorten_lock_timeout.
select set_config('lock_timeout', current_setting('forebay_tx.lock_timeout'), true);
