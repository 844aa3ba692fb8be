-- edges_behind: edges from a parent in one of two states, by child. Relies on index forebay_edges_parent.
select child, number, parent, on_failure, state
from forebay_edges
where parent = :parent and (state = :one or state = :other)
order by child, number
limit :limit;
