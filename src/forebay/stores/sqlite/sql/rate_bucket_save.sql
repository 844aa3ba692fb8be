-- rate_bucket_save: save the token bucket of a key.
insert into forebay_rate_buckets (scope, token_parts, refilled_at)
values (:scope, :token_parts, :refilled_at)
on conflict (scope) do update set token_parts = excluded.token_parts, refilled_at = excluded.refilled_at;
