-- aftermaths_if: put jobs on the list if edges that this concerns lead from them. Relies on index edges_parent.
insert into forebay.aftermaths (parent, aftermath)
select n.parent, %(aftermath)s::text
from unnest(%(parents)b::text[]) with ordinality as n (parent, place)
where exists (select 1 from forebay.edges where parent = n.parent and state = any(%(states)b::text[]))
order by n.place
returning number;
