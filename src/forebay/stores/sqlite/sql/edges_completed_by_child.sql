-- edges_completed_by_child: how many edges these jobs have met for each that waits for them, by completing; up to a limit of edges.
-- Relies on index forebay_edges_parent.
select child_id, count(*)
from (
  select edge.child_id
  from json_each(:parent_ids) as one cross join forebay_dependencies as edge
  where edge.parent_id = one.value and edge.state = 'open'
  limit :limit
)
group by child_id;
