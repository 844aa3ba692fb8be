-- sequences_among: those of these sequences that have jobs.
select n.name
from unnest(%(names)b::text[]) as n (name)
where exists (select 1 from forebay.sequences s where s.name = n.name and s.position is not null offset 0);
