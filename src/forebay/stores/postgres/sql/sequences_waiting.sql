-- sequences_waiting: those of these jobs that come after others of their sequences.
select distinct s.job_id
from forebay.sequences s
where s.job_id = any(%(ids)b::text[])
  and exists (select 1 from forebay.sequences f where f.name = s.name and f.position < s.position offset 0);
