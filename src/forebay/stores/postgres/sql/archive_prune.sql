-- archive_prune: delete archive entries of a queue past their retention.
-- Index: job_archive_queue, from the low-water mark on.
delete from forebay.job_archive
where entry_id = any(array(
  select entry_id
  from forebay.job_archive
  where queue = %(queue)s and finished_at >= %(since)s and finished_at <= %(before)s
  order by finished_at
  limit %(limit)s
  for update skip locked
))
returning finished_at;
