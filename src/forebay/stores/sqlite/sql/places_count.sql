-- places_count: how many jobs run in a scope with a lease that has not ended, and when the first of these ends.
select count(*), min(j.lease_expires_at)
from forebay_places p
join forebay_jobs j on j.seq = p.seq
where p.scope = :scope
  and j.state = 'running'
  and j.lease_expires_at > :now;
