-- bucket_save: write what is left of the rate of a key.
insert into forebay_buckets (scope, parts, at)
values (:scope, :token_parts, :refilled_at)
on conflict (scope) do update set parts = excluded.parts, at = excluded.at;
