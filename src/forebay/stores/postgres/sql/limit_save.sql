-- limit_save: store a limit.
insert into forebay.limits (scope, concurrency, rate, per_ms, burst, token_parts, refilled_at)
values (%(scope)b, %(concurrency)b, %(rate)b, %(per_ms)b, %(burst)b, %(token_parts)b, %(refilled_at)b)
on conflict (scope) do update
set concurrency = excluded.concurrency,
    rate = excluded.rate,
    per_ms = excluded.per_ms,
    burst = excluded.burst,
    token_parts = excluded.token_parts,
    refilled_at = excluded.refilled_at;
