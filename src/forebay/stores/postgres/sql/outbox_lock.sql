-- outbox_lock: the same as aftermaths_among, held. Who works on such a line has done so when this answers, and what it has
-- left is as it will stay: others pass by lines that are held.
select a.id, a.job_id, a.cursor_child_id, a.cursor_position
from unnest(%(job_ids)b::text[]) as p (job_id)
cross join lateral (
  select id, job_id, cursor_child_id, cursor_position
  from forebay.dependency_outbox
  where job_id = p.job_id
  order by job_id, id
  for update
) as a
order by a.id;
