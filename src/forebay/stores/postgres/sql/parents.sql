-- parents: edges that lead to jobs.
-- Index: primary key.
select e.child_id, e.position, e.parent_id, e.on_failure, e.state
from unnest(%(ids)b::text[]) with ordinality as asked (id, nth)
cross join lateral (select * from forebay.dependencies where child_id = asked.id offset 0) as e
order by asked.nth, e.position;
