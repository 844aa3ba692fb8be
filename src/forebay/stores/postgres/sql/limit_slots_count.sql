-- limit_slots_count: count the jobs of each scope with an unexpired lease, with the first expiry, and the token bucket
-- of a key.
select s.scope, h.jobs, h.ends_at, b.token_parts, b.refilled_at
from unnest(%(scopes)b::text[]) as s (scope)
cross join lateral (
  select count(*) as jobs, min(l.lease_expires_at) as ends_at
  from forebay.limit_slots p
  cross join lateral (select lease_expires_at from forebay.leases where id = p.id offset 0) as l
  where p.scope = s.scope and l.lease_expires_at > %(now)s
) as h
left join lateral (select token_parts, refilled_at from forebay.rate_buckets where scope = s.scope) as b on true;
