-- events_prune: events are kept for 90 days. Relies on index events_at, from the floor on.
delete from forebay.events
where number = any(array(
  select number
  from forebay.events
  where at >= %(since)s and at <= %(before)s
  order by at
  limit %(limit)s
  for update skip locked
))
returning at;
