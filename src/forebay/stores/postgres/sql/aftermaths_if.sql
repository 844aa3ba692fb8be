-- aftermaths_if: put jobs on the list if edges that this concerns lead from them, or will once what is on the list
-- already is done. Relies on the indexes edges_parent and aftermaths_parent.
insert into forebay.aftermaths (parent, aftermath)
select n.parent, %(aftermath)s::text
from unnest(%(parents)b::text[]) with ordinality as n (parent, place)
where exists (select 1 from forebay.edges where parent = n.parent and state = any(%(states)b::text[]))
  or exists (select 1 from forebay.aftermaths where parent = n.parent)
order by n.place
returning number;
