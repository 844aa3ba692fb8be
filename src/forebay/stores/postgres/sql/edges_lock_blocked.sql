-- edges_lock_blocked: lock the edges of those of these jobs that are blocked, and count them.
-- Locks: edges by child and position, and before blocked rows; every transaction takes these locks in that order.
select count(*)
from (
  select 1
  from forebay.dependencies
  where child_id = any(array(select id from forebay.blocked where id = any(%(ids)b::text[])))
  order by child_id, position
  for update
) as e;
