-- limit_save: write a limit as it shall be from now on.
insert into forebay.limits (scope, concurrency, rate, per_ms, burst, parts, at)
values (%(scope)b, %(concurrency)b, %(rate)b, %(per_ms)b, %(burst)b, %(token_parts)b, %(refilled_at)b)
on conflict (scope) do update
set concurrency = excluded.concurrency,
    rate = excluded.rate,
    per_ms = excluded.per_ms,
    burst = excluded.burst,
    parts = excluded.parts,
    at = excluded.at;
