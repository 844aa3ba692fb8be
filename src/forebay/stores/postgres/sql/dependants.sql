-- dependants: the edges that lead from jobs. Relies on index edges_parent.
select child, number, parent, on_failure, state
from forebay.edges
where parent = any(%(ids)b::text[])
  and (%(after)s::text is null or (parent, child, number) > (%(after)s, %(after_child_id)s::text, %(after_position)s::bigint))
order by parent, child, number
limit %(limit)s;
