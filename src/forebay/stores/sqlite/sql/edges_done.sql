-- edges_done: how many edges these jobs have met for each that waits for them, by completing; up to a limit of edges.
-- Relies on index forebay_edges_parent.
select child, count(*)
from (
  select edge.child
  from json_each(:parents) as one cross join forebay_edges as edge
  where edge.parent = one.value and edge.state = 'open'
  limit :limit
)
group by child;
