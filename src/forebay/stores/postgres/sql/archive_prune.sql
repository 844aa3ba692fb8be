-- archive_prune: lines of a queue that were kept long enough. Relies on index archive_queue, from the floor on.
delete from forebay.archive
where number = any(array(
  select number
  from forebay.archive
  where queue = %(queue)s and finished_at >= %(since)s and finished_at <= %(before)s
  order by finished_at
  limit %(limit)s
  for update skip locked
))
returning finished_at;
