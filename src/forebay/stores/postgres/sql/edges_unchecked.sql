-- edges_unchecked: lock the unchecked edges to the parents of jobs.
-- Locks: edges by child and position, and before blocked rows; every transaction takes these locks in that order.
select child_id, position, parent_id, on_failure, 'open', ctid::text
from forebay.dependencies
where child_id = any(%(child_ids)b::text[]) and state = 'unchecked'
order by child_id, position
for update;
