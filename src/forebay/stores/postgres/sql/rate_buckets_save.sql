-- rate_buckets_save: store token buckets of keys.
insert into forebay.rate_buckets (scope, token_parts, refilled_at)
select b.scope, b.token_parts, b.refilled_at
from unnest(%(scopes)b::text[], %(token_parts)b::bigint[], %(refilled_at)b::bigint[])
  as b (scope, token_parts, refilled_at)
on conflict (scope) do update set token_parts = excluded.token_parts, refilled_at = excluded.refilled_at;
