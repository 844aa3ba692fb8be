-- edges_completed_by_child: number of open edges from these completed jobs to each child, up to a limit of
-- edges.
-- Index: forebay_dependencies_parent.
select child_id, count(*)
from (
  select edge.child_id
  from json_each(:parent_ids) as one cross join forebay_dependencies as edge
  where edge.parent_id = one.value and edge.state = 'open'
  limit :limit
)
group by child_id;
