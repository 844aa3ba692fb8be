-- limit_slots_count: number of running jobs in each of these scopes whose lease has not ended, and the
-- earliest end; no row for a scope without any.
-- Cost: with a row for each scope it took 1.2 us a job more.
select p.scope, count(*), min(j.lease_expires_at)
from json_each(:scopes) s
cross join forebay_limit_slots p on p.scope = s.value
cross join forebay_jobs j on j.seq = p.seq and j.state = 'running' and j.lease_expires_at > :now
group by p.scope;
