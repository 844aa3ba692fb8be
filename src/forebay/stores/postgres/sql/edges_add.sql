-- edges_add: edges of new jobs.
insert into forebay.edges (child, number, parent, on_failure, state)
select e.child, e.number, e.parent, e.on_failure, e.state
from unnest(
  %(children)b::text[], %(numbers)b::bigint[], %(parents)b::text[], %(on_failures)b::text[], %(states)b::text[]
) as e (child, number, parent, on_failure, state);
