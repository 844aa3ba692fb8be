-- dependants: edges that lead from jobs. Index: forebay_dependencies_parent.
select child_id, position, parent_id, on_failure, state
from forebay_dependencies
where parent_id in (select value from json_each(:ids))
  and (:after is null or (parent_id, child_id, position) > (:after, :after_child_id, :after_position))
order by parent_id, child_id, position
limit :limit;
