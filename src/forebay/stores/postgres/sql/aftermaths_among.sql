-- aftermaths_among: what the list still has to do about jobs, oldest first, and how far it has come. Each job is looked up by
-- itself and in the order of index aftermaths_parent, for the reason that `due` gives.
select a.number, a.parent, a.after_child, a.after_number
from unnest(%(parents)b::text[]) as p (parent)
cross join lateral (
  select number, parent, after_child, after_number
  from forebay.aftermaths
  where parent = p.parent
  order by parent, number
  offset 0
) as a
order by a.number;
