-- dependants: the edges that lead from jobs. Relies on index forebay_edges_parent.
select child, number, parent, on_failure, state
from forebay_edges
where parent in (select value from json_each(:ids))
  and (:after is null or (parent, child, number) > (:after, :after_child_id, :after_position))
order by parent, child, number
limit :limit;
