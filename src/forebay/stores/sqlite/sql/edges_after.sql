-- edges_after: open edges of a completed job after a cursor. Index: forebay_dependencies_parent.
select child_id, position
from forebay_dependencies
where parent_id = :parent_id and state = 'open' and (child_id, position) > (:cursor_child_id, :cursor_position)
order by child_id, position
limit :limit;
