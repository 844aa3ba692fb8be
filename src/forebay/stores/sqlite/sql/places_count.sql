-- places_count: how many jobs run in each of these scopes with a lease that has not ended, when the first of these
-- ends, and what is left of the rate of a key.
select s.value, count(j.seq), min(j.lease_expires_at), b.parts, b.at
from json_each(:scopes) s
left join forebay_places p on p.scope = s.value
left join forebay_jobs j on j.seq = p.seq and j.state = 'running' and j.lease_expires_at > :now
left join forebay_buckets b on b.scope = s.value
group by s.value;
