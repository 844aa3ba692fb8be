-- parents: the edges that lead to jobs. Relies on the primary key.
select e.child, e.number, e.parent, e.on_failure, e.state
from unnest(%(ids)b::text[]) with ordinality as asked (id, place)
cross join lateral (select * from forebay.edges where child = asked.id offset 0) as e
order by asked.place, e.number;
