-- limit_save: save a limit.
insert into forebay_limits (scope, concurrency, rate, per_ms, burst, token_parts, refilled_at)
values (:scope, :concurrency, :rate, :per_ms, :burst, :token_parts, :refilled_at)
on conflict (scope) do update
set concurrency = excluded.concurrency,
    rate = excluded.rate,
    per_ms = excluded.per_ms,
    burst = excluded.burst,
    token_parts = excluded.token_parts,
    refilled_at = excluded.refilled_at;
