-- aftermaths_add: put jobs on the list.
insert into forebay.aftermaths (parent, aftermath)
select n.parent, n.aftermath
from unnest(%(parents)b::text[], %(aftermaths)b::text[]) with ordinality as n (parent, aftermath, place)
order by n.place
returning number;
