-- aftermaths_lock: the same as aftermaths_among, held. Who works on such a line has done so when this answers, and what it has
-- left is as it will stay: others pass by lines that are held.
select a.number, a.parent, a.after_child, a.after_number
from unnest(%(parents)b::text[]) as p (parent)
cross join lateral (
  select number, parent, after_child, after_number
  from forebay.aftermaths
  where parent = p.parent
  order by parent, number
  for update
) as a
order by a.number;
