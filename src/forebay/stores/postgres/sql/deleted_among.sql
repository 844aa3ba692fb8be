-- deleted_among: of these jobs without a row, those that had not completed when they were deleted.
-- Guarantees: it runs after the search for the rows, so it sees the audit entry of the deletion, and the outbox entry
-- if an edge was known then.
-- Index: audit_job and dependency_outbox_job; one probe per job, see `delayed_take_due`.
select p.job_id
from unnest(%(job_ids)b::text[]) as p (job_id)
where exists (
    select 1 from forebay.audit where job_id = p.job_id and kind = 'deleted' and detail <> 'completed' offset 0
  )
  or exists (
    select 1 from forebay.dependency_outbox where job_id = p.job_id and event = 'deleted' offset 0
  );
