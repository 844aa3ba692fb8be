-- edges_add: store edges of new jobs that have the same state and failure rule.
insert into forebay.dependencies (child_id, position, parent_id, on_failure, state)
select e.child_id, e.position, e.parent_id, %(on_failure)s::text, %(state)s::text
from unnest(%(child_ids)b::text[], %(positions)b::bigint[], %(parent_ids)b::text[]) as e (child_id, position, parent_id);
