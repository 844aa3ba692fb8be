-- edges_behind: edges that lead from jobs in one of some states, held, by child.
-- Guarantees: edges before blocked rows is the order in which all take these locks who take both. What blocks a child is
-- looked at in a later statement, so that it is as it was left by whoever had held its edges.
select child, number, parent, on_failure, state, ctid::text as spot
from forebay.edges
where parent = any(%(parents)b::text[]) and state = any(%(states)b::text[])
order by child, number
limit %(limit)s
for update;
