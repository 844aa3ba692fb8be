-- now_completing: what now does, in a caller's transaction that completes a job. Until it ends others see that it holds the
-- job (`ids_busy`, `parents_hold`), and need not wait for its lock.
select set_config('forebay_tx.now', forebay.now_ms()::text, true)::bigint,
  pg_try_advisory_xact_lock(hashtextextended('forebay.jobs ' || %(id)s::text, 0));
