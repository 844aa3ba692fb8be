-- unchecked_parents: unchecked parents of jobs.
-- Cost: one probe per child. A planner without statistics may otherwise walk all edges in the order of their parents,
-- which the answer has.
select distinct e.parent_id
from unnest(%(child_ids)b::text[]) as c (child_id)
cross join lateral (
  select parent_id from forebay.dependencies where child_id = c.child_id and state = 'unchecked' offset 0
) as e
order by e.parent_id;
