-- aftermaths_if: put jobs on the list if edges that this concerns lead from them, or will once what is on the list
-- already is done; deleted ones also if they are in a sequence. Relies on the indexes edges_parent, aftermaths_parent and
-- sequences_id; each job is looked up by itself, for the reason that `due` gives.
insert into forebay.aftermaths (parent, aftermath)
select n.parent, %(aftermath)s::text
from unnest(%(parents)b::text[]) with ordinality as n (parent, place)
where (
    select number
    from forebay.edges
    where parent = n.parent and state = any(%(states)b::text[])
    order by parent, child, number
    limit 1
  ) is not null
  or (select number from forebay.aftermaths where parent = n.parent order by parent, number limit 1) is not null
  or (%(aftermath)s::text = 'deleted' and exists (select 1 from forebay.sequences where id = n.parent offset 0))
order by n.place
returning number;
