-- outbox_for_jobs: what the list still has to do about jobs, oldest first, and how far it has come. Each job is looked up by
-- itself and in the order of index aftermaths_parent, for the reason that `due` gives.
select a.id, a.job_id, a.cursor_child_id, a.cursor_position
from unnest(%(job_ids)b::text[]) as p (job_id)
cross join lateral (
  select id, job_id, cursor_child_id, cursor_position
  from forebay.dependency_outbox
  where job_id = p.job_id
  order by job_id, id
  offset 0
) as a
order by a.id;
