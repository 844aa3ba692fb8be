-- sequences_first: the first jobs of sequences. Relies on index sequences_order.
select n.name, f.position, f.job_id
from unnest(%(names)b::text[]) as n (name)
cross join lateral (
  select position  , job_id from forebay.sequences where name = n.name and position is not null order by position limit 1
) as f;
