-- sequences_of: in which sequences jobs stand. Relies on index sequences_id; each job is looked up by itself, for the
-- reason that `due` gives.
select distinct s.name
from unnest(%(ids)b::text[]) as i (id)
cross join lateral (select name from forebay.sequences where job_id = i.id offset 0) as s;
