-- archive_prune: lines of a queue that were kept long enough. Relies on index archive_queue, from the floor on.
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
