-- limit_usages: all limits with their token buckets, and the number of jobs with an unexpired lease under each.
-- Cost: few jobs run, and slots belong to running jobs: nothing here grows with waiting or finished jobs.
select l.scope, l.concurrency, l.rate, l.per_ms, l.burst, l.token_parts, l.refilled_at,
  case
    when l.scope = 'global' or l.scope like 'queue:%%' then (
      select count(*)
      from forebay.leases h
      where h.lease_expires_at > %(now)s and (l.scope = 'global' or h.queue = substr(l.scope, 7))
    )
    else (
      select count(*)
      from forebay.limit_slots p
      join forebay.leases h on h.id = p.id and h.lease_expires_at > %(now)s
      where p.scope = l.scope or (l.scope like 'key:%%' and starts_with(p.scope, l.scope || ':'))
    )
  end
from forebay.limits l
order by l.scope;
