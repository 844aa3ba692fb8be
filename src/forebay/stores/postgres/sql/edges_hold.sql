-- edges_hold: hold the edges of those of these jobs that are blocked, and how many they are.
-- Guarantees: edges are locked by child and number, and before blocked rows: that is the order of all who take these locks.
select count(*)
from (
  select 1
  from forebay.edges
  where child = any(array(select id from forebay.blocked where id = any(%(ids)b::text[])))
  order by child, number
  for update
) as e;
