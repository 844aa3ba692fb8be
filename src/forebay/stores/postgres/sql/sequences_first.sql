-- sequences_first: first jobs of sequences.
-- Index: sequences_order.
select n.name, f.position, f.job_id
from unnest(%(names)b::text[]) as n (name)
cross join lateral (
  select position, job_id from forebay.sequences where name = n.name and position is not null order by position limit 1
) as f;
