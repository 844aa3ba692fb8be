-- unsure_parents: the parents of jobs at which nobody has looked. Child by child: a planner that knows nothing of the table
-- may else walk all edges in the order of their parents, which the answer is to have.
select distinct e.parent
from unnest(%(children)b::text[]) as c (child)
cross join lateral (select parent from forebay.edges where child = c.child and state = 'unsure' offset 0) as e
order by e.parent;
