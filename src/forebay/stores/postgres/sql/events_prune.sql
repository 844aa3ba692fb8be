-- events_prune: events are kept for 90 days. Relies on index events_at, from the floor on.
delete from forebay.events
where id = any(array(
  select id
  from forebay.events
  where occurred_at >= %(since)s and occurred_at <= %(before)s
  order by occurred_at
  limit %(limit)s
  for update skip locked
))
returning occurred_at;
