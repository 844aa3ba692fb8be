-- archive_prune: lines of a queue that were kept long enough.
-- Relies on index forebay_archive_queue (queue, finished_at).
delete from forebay_job_archive
where entry_id in (
  select entry_id
  from forebay_job_archive
  where queue = :queue
    and finished_at <= :before
  order by finished_at
  limit :limit
);
