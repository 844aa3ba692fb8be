-- limit_slots_count: how many jobs run in each of these scopes with a lease that has not ended, and when the first of these
-- ends; nothing of a scope in which none runs. With a row for each scope it took 1.2 us a job more.
select p.scope, count(*), min(j.lease_expires_at)
from json_each(:scopes) s
cross join forebay_limit_slots p on p.scope = s.value
cross join forebay_jobs j on j.seq = p.seq and j.state = 'running' and j.lease_expires_at > :now
group by p.scope;
