-- rescore_drop: clear `rescore_at` of a job that is not pending: it gets a rank when it becomes pending
-- again.
update forebay_jobs
set rescore_at = null
where seq = :seq
  and state <> 'pending';
