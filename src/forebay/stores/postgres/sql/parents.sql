-- parents: edges that lead to jobs.
-- Index: primary key.
select e.child_id, e.position, e.parent_id, e.on_failure, e.state
from unnest(%(ids)b::text[]) with ordinality as children (id, nth)
cross join lateral (select * from forebay.dependencies where child_id = children.id offset 0) as e
order by children.nth, e.position;
