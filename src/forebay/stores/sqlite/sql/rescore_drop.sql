-- rescore_drop: a job that is not pending gets its place when it becomes so again.
update forebay_jobs
set rescore_at = null
where seq = :seq
  and state <> 'pending';
