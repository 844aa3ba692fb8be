-- edges_lock: the edges to the parents of jobs, held, so that nobody settles one of them before the transaction ends.
select child_id, position, parent_id, state, ctid::text
from forebay.dependencies
where child_id = any(%(child_ids)b::text[])
order by child_id, position
for update;
