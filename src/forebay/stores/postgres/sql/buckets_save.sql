-- buckets_save: write what is left of the rates of keys.
insert into forebay.buckets (scope, parts, at)
select b.scope, b.parts, b.at
from unnest(%(scopes)b::text[], %(parts)b::bigint[], %(ats)b::bigint[]) as b (scope, parts, at)
on conflict (scope) do update set parts = excluded.parts, at = excluded.at;
