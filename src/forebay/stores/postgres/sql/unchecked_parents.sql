-- unchecked_parents: the parents of jobs at which nobody has looked. Child by child: a planner that knows nothing of the table
-- may else walk all edges in the order of their parents, which the answer is to have.
select distinct e.parent_id
from unnest(%(child_ids)b::text[]) as c (child_id)
cross join lateral (select parent_id from forebay.dependencies where child_id = c.child_id and state = 'unchecked' offset 0) as e
order by e.parent_id;
