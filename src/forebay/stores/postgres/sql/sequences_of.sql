-- sequences_of: sequences of jobs.
-- Index: sequences_job; one probe per job, see `delayed_take_due`.
select distinct s.name
from unnest(%(ids)b::text[]) as i (id)
cross join lateral (select name from forebay.sequences where job_id = i.id offset 0) as s;
