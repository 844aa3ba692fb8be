-- edges_lock: lock the edges to the parents of jobs, so that no other transaction settles one of them.
-- Locks: edges by child and position.
select child_id, position, parent_id, state, ctid::text
from forebay.dependencies
where child_id = any(%(child_ids)b::text[])
order by child_id, position
for update;
