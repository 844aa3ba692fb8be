-- outbox_lock: `outbox_for_jobs`, locked. A transaction that worked on such an entry has ended when this answers, and
-- what it left is final: other transactions pass over locked entries.
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
