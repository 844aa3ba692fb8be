-- places_count: how many jobs run in each of these scopes with a lease that has not ended, when the first of these
-- ends, and what is left of the rate of a key.
select s.scope, h.jobs, h.ends_at, b.parts, b.at
from unnest(%(scopes)b::text[]) as s (scope)
cross join lateral (
  select count(*) as jobs, min(l.until) as ends_at
  from forebay.places p
  cross join lateral (select until from forebay.leases where id = p.id offset 0) as l
  where p.scope = s.scope and l.until > %(now)s
) as h
left join lateral (select parts, at from forebay.buckets where scope = s.scope) as b on true;
