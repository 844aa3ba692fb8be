-- edges_behind: edges that lead from jobs in one of some states, held; by job, then by child.
-- Guarantees: edges before blocked rows is the order in which all take these locks who take both. What blocks a child is
-- looked at in a later statement, so that it is as it was left by whoever had held its edges.
-- Each job is looked up by itself and in the order of index edges_parent, for the reason that `due` gives.
select e.child, e.number, e.parent, e.on_failure, e.state, e.spot::text
from unnest(%(parents)b::text[]) as p (parent)
cross join unnest(%(states)b::text[]) as s (state)
cross join lateral (
  select child, number, parent, on_failure, state, ctid as spot
  from forebay.edges
  where parent = p.parent and state = s.state
  order by parent, state, child, number
  limit %(limit)s
  for update
) as e
limit %(limit)s;
