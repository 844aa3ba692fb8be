-- edges_lock_blocked: hold the edges of those of these jobs that are blocked, and how many they are.
-- Guarantees: edges are locked by child and number, and before blocked rows: that is the order of all who take these locks.
select count(*)
from (
  select 1
  from forebay.dependencies
  where child_id = any(array(select id from forebay.blocked where id = any(%(ids)b::text[])))
  order by child_id, position
  for update
) as e;
