-- now_completing: what `now` does, in a caller transaction that completes a job. It takes the advisory lock of the job
-- until that ends. So other transactions see it (`ids_busy`, `parents_lock`) and need not wait.
select set_config('forebay_tx.now', forebay.now_ms()::text, true)::bigint,
  pg_try_advisory_xact_lock(hashtextextended('forebay.jobs ' || %(id)s::text, 0));
