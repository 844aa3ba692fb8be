-- edges_add: edges of new jobs that stand alike.
insert into forebay.edges (child, number, parent, on_failure, state)
select e.child, e.number, e.parent, %(on_failure)s::text, %(state)s::text
from unnest(%(children)b::text[], %(numbers)b::bigint[], %(parents)b::text[]) as e (child, number, parent);
