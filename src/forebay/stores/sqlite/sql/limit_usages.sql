-- limit_usages: all limits, with what is left of their rates and how many jobs run under them: those with a lease that has not
-- ended. Few jobs run, and places are of jobs that do: nothing here grows with what waits or has ended.
select l.scope, l.concurrency, l.rate, l.per_ms, l.burst, l.token_parts, l.refilled_at,
  case
    when l.scope = 'global' or l.scope like 'queue:%' then (
      select count(*)
      from forebay_jobs j
      where j.state = 'running' and j.lease_expires_at > :now
        and (l.scope = 'global' or j.queue = substr(l.scope, 7))
    )
    -- Of a key the places of all its values, which stand behind a colon. The next character has the number 59.
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
