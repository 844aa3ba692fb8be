-- limit_usages: all limits, with their token buckets and their running jobs whose lease has not ended.
-- Cost: few jobs run, and only running jobs have slots, so nothing here grows with waiting or final jobs.
select l.scope, l.concurrency, l.rate, l.per_ms, l.burst, l.token_parts, l.refilled_at,
  case
    when l.scope = 'global' or l.scope like 'queue:%' then (
      select count(*)
      from forebay_jobs j
      where j.state = 'running' and j.lease_expires_at > :now
        and (l.scope = 'global' or j.queue = substr(l.scope, 7))
    )
    -- For a key the slots of all its values, which follow a colon. The character after the colon has the number 59.
    else (
      select count(*)
      from forebay_limit_slots p
      cross join forebay_jobs j on j.seq = p.seq and j.state = 'running' and j.lease_expires_at > :now
      where p.scope >= case when l.scope like 'key:%' then l.scope || ':' else l.scope end
        and p.scope <= case when l.scope like 'key:%' then l.scope || char(59) else l.scope end
    )
  end
from forebay_limits l
order by l.scope;
