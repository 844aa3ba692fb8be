-- edges_unchecked: edges to the parents of jobs at which nobody had looked, held.
-- Guarantees: edges are locked by child and number, and before blocked rows: that is the order of all who take these locks.
select child_id, position, parent_id, on_failure, 'open', ctid::text
from forebay.dependencies
where child_id = any(%(child_ids)b::text[]) and state = 'unchecked'
order by child_id, position
for update;
