-- bucket_save: write what is left of the rate of a key.
insert into forebay_buckets (scope, parts, at)
values (:scope, :parts, :at)
on conflict (scope) do update set parts = excluded.parts, at = excluded.at;
