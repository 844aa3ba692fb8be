-- restore_lock_timeout: restore the lock timeout from before `shorten_lock_timeout`.
select set_config('lock_timeout', current_setting('forebay_tx.lock_timeout'), true);
