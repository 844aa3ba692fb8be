-- outbox_for_jobs: outbox entries of jobs with their cursors, oldest first.
-- Index: dependency_outbox_job, in its order; one probe per job, see `delayed_take_due`.
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
