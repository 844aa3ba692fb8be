-- edges_unsure: edges to the parents of jobs at which nobody had looked, held.
-- Guarantees: edges are locked by child and number, and before blocked rows: that is the order of all who take these locks.
select child, number, parent, on_failure, 'open', ctid::text
from forebay.edges
where child = any(%(children)b::text[]) and state = 'unsure'
order by child, number
for update;
