-- dependants: edges that lead from jobs.
-- Index: dependencies_parent.
select child_id, position, parent_id, on_failure, state
from forebay.dependencies
where parent_id = any(%(ids)b::text[])
  and (
    %(after)s::text is null
    or (parent_id, child_id, position) > (%(after)s, %(after_child_id)s::text, %(after_position)s::bigint)
  )
order by parent_id, child_id, position
limit %(limit)s;
