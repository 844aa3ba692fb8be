-- limits_running: count the jobs with an unexpired lease under limits that were locked before.
-- Guarantees: a statement of its own after the lock, since it must see claims that were committed while this
-- transaction waited.
select l.scope, n.now,
  case when l.concurrency is not null then (
    select count(*)
    from (
      select 1
      from forebay.leases
      where lease_expires_at > n.now and (l.scope = 'global' or queue = substr(l.scope, 7))
      limit l.concurrency
    ) as locked
  ) else 0 end
from forebay.limits l
cross join (select forebay.now_ms() as now offset 0) as n
where l.scope = any(%(scopes)b::text[]) and (l.scope = 'global' or l.scope like 'queue:%%');
