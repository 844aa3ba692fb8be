-- archive_prune: remove archive lines of a queue past their retention.
-- Index: forebay_job_archive_queue (queue, finished_at).
delete from forebay_job_archive
where entry_id in (
  select entry_id
  from forebay_job_archive
  where queue = :queue
    and finished_at <= :before
  order by finished_at
  limit :limit
);
