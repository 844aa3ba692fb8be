-- events_prune: the audit log is kept for 90 days. Relies on index events_at.
delete from forebay.events
where number = any(array(
  select number
  from forebay.events
  where at <= %(before)s
  order by at
  limit %(limit)s
  for update skip locked
));
