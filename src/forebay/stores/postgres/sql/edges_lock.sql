-- edges_lock: the edges to the parents of jobs, held, so that nobody settles one of them before the transaction ends.
select child, number, parent, state, ctid::text
from forebay.edges
where child = any(%(children)b::text[])
order by child, number
for update;
