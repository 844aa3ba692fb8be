-- sequences_first: the first jobs of sequences. Relies on index sequences_order.
select n.name, f.number, f.id
from unnest(%(names)b::text[]) as n (name)
cross join lateral (
  select number, id from forebay.sequences where name = n.name and number is not null order by number limit 1
) as f;
