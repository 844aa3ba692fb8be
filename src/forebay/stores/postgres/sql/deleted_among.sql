-- deleted_among: which of these jobs, of which no row is left, had not completed when they were deleted.
-- Guarantees: asked after the rows were looked for, so that it sees what the deletion has written: its line in the audit log, and a line
-- of the list where an edge was known then. Relies on the indexes audit_job and aftermaths_parent; each job is looked up by itself, for
-- the reason that `due` gives.
select p.job_id
from unnest(%(job_ids)b::text[]) as p (job_id)
where exists (
    select 1 from forebay.audit where job_id = p.job_id and kind = 'deleted' and detail <> 'completed' offset 0
  )
  or exists (
    select 1 from forebay.dependency_outbox where job_id = p.job_id and event = 'deleted' offset 0
  );
