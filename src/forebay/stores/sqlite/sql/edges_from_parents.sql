-- edges_from_parents: edges from a parent in one of two states, by child. Index: forebay_dependencies_parent.
select child_id, position, parent_id, on_failure, state
from forebay_dependencies
where parent_id = :parent_id and (state = :state or state = :other_state)
order by child_id, position
limit :limit;
