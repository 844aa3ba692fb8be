-- sequences_waiting: which of these jobs come after others of their sequences.
select distinct s.id
from forebay.sequences s
where s.id = any(%(ids)b::text[])
  and exists (select 1 from forebay.sequences f where f.name = s.name and f.number < s.number offset 0);
