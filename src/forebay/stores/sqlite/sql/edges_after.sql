-- edges_after: open edges of a job that has completed, from one on. Relies on index forebay_edges_parent.
select child_id, position
from forebay_dependencies
where parent_id = :parent_id and state = 'open' and (child_id, position) > (:cursor_child_id, :cursor_position)
order by child_id, position
limit :limit;
